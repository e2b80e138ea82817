-- The first schema. States and their transitions repeat task.py; a lease is memory only, so no row is ever 'leased'.

-- One row: who owns the file, and the book (counters, high-water marks, powered-on clock) that each commit writes.
CREATE TABLE store (
    id      INTEGER PRIMARY KEY CHECK (id = 1),
    epoch   TEXT NOT NULL,
    session INTEGER NOT NULL,
    book    TEXT NOT NULL
);

CREATE TABLE task (
    seq             INTEGER PRIMARY KEY,
    task_id         BLOB NOT NULL UNIQUE CHECK (length(task_id) = 16),
    state           TEXT NOT NULL CHECK (state IN (
        'delayed', 'blocked', 'ready', 'running', 'handed_over', 'done', 'dead', 'expired', 'cancelled', 'unknown'
    )),
    priority        INTEGER NOT NULL,
    turn            INTEGER NOT NULL,
    kind            TEXT NOT NULL,
    is_once         INTEGER NOT NULL,
    retries         INTEGER NOT NULL,
    body            BLOB NOT NULL,
    accepted_wall_s REAL NOT NULL,
    queue_key       TEXT,
    request_key     TEXT,
    attempt         INTEGER NOT NULL,
    tries           INTEGER NOT NULL,
    placement       TEXT,
    known           TEXT,
    is_offered      INTEGER NOT NULL,
    home_node       TEXT NOT NULL,
    placed_on       TEXT NOT NULL,
    fence           TEXT,
    due_on_s        REAL,
    expires_on_s    REAL,
    deadline_on_s   REAL,
    lease_on_s      REAL,
    ended_on_s      REAL,
    ended_wall_s    REAL,
    waiting_for     TEXT NOT NULL,
    outcome         BLOB,
    decision        BLOB,
    CHECK ((ended_on_s IS NOT NULL) = (state IN ('done', 'dead', 'expired', 'cancelled', 'unknown'))),
    CHECK (state != 'delayed' OR due_on_s IS NOT NULL),
    CHECK (state != 'running' OR fence IS NOT NULL)
);

-- Partial indexes: each holds only the rows its question is about, so that an answer does not depend on the backlog.
CREATE INDEX task_ready ON task (priority DESC, turn) WHERE state = 'ready';
CREATE INDEX task_due ON task (due_on_s) WHERE state = 'delayed';
CREATE INDEX task_running ON task (seq) WHERE state = 'running';
CREATE INDEX task_expiring ON task (expires_on_s)
    WHERE expires_on_s IS NOT NULL AND state IN ('delayed', 'blocked', 'ready', 'running');
CREATE INDEX task_lapsing ON task (lease_on_s)
    WHERE lease_on_s IS NOT NULL AND placement IS NOT NULL AND state IN ('delayed', 'blocked', 'ready');
CREATE INDEX task_placed ON task (seq)
    WHERE placement IS NOT NULL AND state IN ('delayed', 'blocked', 'ready', 'running');
CREATE INDEX task_key ON task (queue_key, turn)
    WHERE queue_key IS NOT NULL AND state IN ('delayed', 'blocked', 'ready', 'running', 'handed_over');
CREATE INDEX task_ended ON task (ended_on_s) WHERE ended_on_s IS NOT NULL;
CREATE UNIQUE INDEX task_request ON task (request_key) WHERE request_key IS NOT NULL;

CREATE TABLE attempt (
    seq            INTEGER NOT NULL REFERENCES task (seq) ON DELETE CASCADE,
    number         INTEGER NOT NULL,
    fence          TEXT NOT NULL,
    device         TEXT NOT NULL,
    started_wall_s REAL NOT NULL,
    ended          TEXT NOT NULL,
    error          TEXT NOT NULL,
    runtime_s      REAL NOT NULL,
    decision       BLOB,
    PRIMARY KEY (seq, number)
) WITHOUT ROWID;

CREATE TABLE outbox (
    lane     TEXT NOT NULL,
    seq      INTEGER NOT NULL,
    kind     TEXT NOT NULL,
    key      TEXT NOT NULL,
    "coalesce" TEXT NOT NULL,
    body     BLOB NOT NULL,
    PRIMARY KEY (lane, seq)
) WITHOUT ROWID;
CREATE INDEX outbox_coalesce ON outbox (lane, "coalesce") WHERE "coalesce" != '';

CREATE TABLE inbox (
    source TEXT NOT NULL,
    epoch  TEXT NOT NULL,
    lane   TEXT NOT NULL,
    upto   INTEGER NOT NULL,
    PRIMARY KEY (source, epoch, lane)
) WITHOUT ROWID;

CREATE TABLE meta (
    name  TEXT PRIMARY KEY,
    value BLOB NOT NULL
) WITHOUT ROWID;
