-- The coordinator's ledger. JSON columns hold the values of skerry/ and ledger/values.py as they travel.
CREATE TABLE meta (
    name  TEXT PRIMARY KEY,
    value TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE node (
    name TEXT PRIMARY KEY,
    body TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE token (
    digest TEXT PRIMARY KEY,
    body   TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE task (
    arrival      INTEGER PRIMARY KEY AUTOINCREMENT,
    task_id      TEXT NOT NULL UNIQUE,
    home_node    TEXT NOT NULL,
    kind         TEXT NOT NULL,
    state        TEXT NOT NULL CHECK (state IN ('pending', 'placed', 'ended', 'withdrawn')),
    priority     INTEGER NOT NULL,
    received     TEXT NOT NULL,
    task         TEXT,
    fence        TEXT,
    node         TEXT NOT NULL,
    command_seq  INTEGER NOT NULL,
    placed       TEXT,
    placements   INTEGER NOT NULL,
    excluded     TEXT NOT NULL,
    waits        TEXT NOT NULL,
    decision     TEXT,
    outcome      TEXT,
    attempts     INTEGER NOT NULL,
    ended_wall_s REAL,
    CHECK (state <> 'placed' OR (fence IS NOT NULL AND node <> '')),
    CHECK (state <> 'ended' OR outcome IS NOT NULL)
) STRICT;
CREATE INDEX task_pending ON task (priority DESC, arrival) WHERE state = 'pending';
CREATE INDEX task_placed ON task (node, arrival) WHERE state = 'placed';
CREATE INDEX task_final ON task (arrival) WHERE state IN ('ended', 'withdrawn');

CREATE TABLE task_count (
    state TEXT PRIMARY KEY,
    count INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
INSERT INTO task_count VALUES ('pending', 0), ('placed', 0), ('ended', 0), ('withdrawn', 0);
CREATE TRIGGER task_added AFTER INSERT ON task BEGIN
    UPDATE task_count SET count = count + 1 WHERE state = NEW.state;
END;
CREATE TRIGGER task_moved AFTER UPDATE OF state ON task WHEN OLD.state <> NEW.state BEGIN
    UPDATE task_count SET count = count - 1 WHERE state = OLD.state;
    UPDATE task_count SET count = count + 1 WHERE state = NEW.state;
END;
CREATE TRIGGER task_forgotten AFTER DELETE ON task BEGIN
    UPDATE task_count SET count = count - 1 WHERE state = OLD.state;
    DELETE FROM placement WHERE task_id = OLD.task_id;
END;
-- What ended for good stays so, whatever the code above believes. (A failure may be replayed by its home.)
CREATE TRIGGER task_final_stays BEFORE UPDATE OF state ON task
WHEN NEW.state <> OLD.state AND (OLD.state = 'withdrawn' OR OLD.state = 'ended'
     AND OLD.outcome ->> '$.status' IN ('succeeded', 'expired', 'cancelled', 'unknown')) BEGIN
    SELECT RAISE(ABORT, 'a final task does not change its state');
END;

CREATE TABLE placement (
    number       INTEGER PRIMARY KEY AUTOINCREMENT,
    task_id      TEXT NOT NULL,
    fence        TEXT NOT NULL,
    node         TEXT NOT NULL,
    placed_wall_s REAL NOT NULL,
    decision     TEXT,
    ended        TEXT NOT NULL,
    reason       TEXT NOT NULL,
    ended_wall_s REAL,
    UNIQUE (task_id, fence)
) STRICT;

CREATE TABLE command (
    node TEXT NOT NULL,
    lane TEXT NOT NULL CHECK (lane IN ('control', 'live', 'backlog')),
    seq  INTEGER NOT NULL,
    kind TEXT NOT NULL,
    key  TEXT NOT NULL,
    body TEXT NOT NULL,
    PRIMARY KEY (node, lane, seq)
) STRICT, WITHOUT ROWID;

CREATE TABLE command_head (
    node  TEXT NOT NULL,
    lane  TEXT NOT NULL,
    last  INTEGER NOT NULL,
    acked INTEGER NOT NULL,
    PRIMARY KEY (node, lane)
) STRICT, WITHOUT ROWID;

CREATE TABLE mark (
    node    TEXT NOT NULL,
    epoch   TEXT NOT NULL,
    lane    TEXT NOT NULL,
    upto    INTEGER NOT NULL,
    session INTEGER NOT NULL,
    counter INTEGER NOT NULL,
    PRIMARY KEY (node, epoch, lane)
) STRICT, WITHOUT ROWID;

CREATE TABLE dead_letter (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    node   TEXT NOT NULL,
    lane   TEXT NOT NULL,
    seq    INTEGER NOT NULL,
    kind   TEXT NOT NULL,
    body   BLOB NOT NULL,
    reason TEXT NOT NULL,
    wall_s REAL NOT NULL
) STRICT;

CREATE TABLE counter (
    name   TEXT NOT NULL,
    node   TEXT NOT NULL,
    reason TEXT NOT NULL,
    count  INTEGER NOT NULL,
    PRIMARY KEY (name, node, reason)
) STRICT, WITHOUT ROWID;
