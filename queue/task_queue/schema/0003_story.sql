-- What happened to a task becomes a chain of events, written once each. The row that every transition rewrites
-- loses its large columns: the body stands apart, outcome and decisions are in the story.

DROP INDEX task_ready;
DROP INDEX task_due;
DROP INDEX task_running;
DROP INDEX task_expiring;
DROP INDEX task_lapsing;
DROP INDEX task_placed;
DROP INDEX task_key;
DROP INDEX task_ended;
DROP INDEX task_request;
DROP INDEX task_overdue;
ALTER TABLE task RENAME TO old_task;

CREATE TABLE task (
    seq             INTEGER PRIMARY KEY,
    task_id         BLOB NOT NULL UNIQUE CHECK (length(task_id) = 16),
    state           TEXT NOT NULL,
    priority        INTEGER NOT NULL,
    turn            INTEGER NOT NULL,
    kind            TEXT NOT NULL,
    is_once         INTEGER NOT NULL,
    retries         INTEGER NOT NULL,
    size_bytes      INTEGER NOT NULL,
    accepted_wall_s REAL NOT NULL,
    queue_key       TEXT,
    request_key     TEXT,
    attempt         INTEGER NOT NULL DEFAULT 0,
    tries           INTEGER NOT NULL DEFAULT 0,
    placement       TEXT,
    known           TEXT,
    is_offered      INTEGER NOT NULL DEFAULT 0,
    home_node       TEXT NOT NULL DEFAULT '',
    placed_on       TEXT NOT NULL DEFAULT '',
    fence           TEXT,
    due_on_s        REAL,
    expires_on_s    REAL,
    deadline_on_s   REAL,
    lease_on_s      REAL,
    ended_on_s      REAL,
    ended_wall_s    REAL,
    waiting_for     TEXT NOT NULL DEFAULT '',
    last_event      INTEGER,
    events          INTEGER NOT NULL DEFAULT 0,
    -- Chains of OR: an IN list would be built anew for each row that is written.
    CHECK (
        state = 'ready' OR state = 'running' OR state = 'done' OR state = 'delayed' OR state = 'blocked'
        OR state = 'handed_over' OR state = 'dead' OR state = 'expired' OR state = 'cancelled' OR state = 'unknown'
    ),
    CHECK ((ended_on_s IS NOT NULL) = (
        state = 'done' OR state = 'dead' OR state = 'expired' OR state = 'cancelled' OR state = 'unknown'
    )),
    CHECK (state != 'delayed' OR due_on_s IS NOT NULL),
    CHECK (state != 'running' OR fence IS NOT NULL)
);

-- A task as it was submitted: written once, deleted with its task.
CREATE TABLE body (
    seq  INTEGER PRIMARY KEY,
    body BLOB NOT NULL
);

-- A story is walked from task.last_event along prev, so it needs no index. Its beginning is the task's own row.
CREATE TABLE event (
    id        INTEGER PRIMARY KEY,
    prev      INTEGER,
    at_wall_s REAL NOT NULL,
    on_s      REAL,
    what      TEXT NOT NULL,
    detail    BLOB
);

-- What is left of a task when its record is forgotten: enough to recognise a repetition.
CREATE TABLE remembered (
    task_id     BLOB PRIMARY KEY CHECK (length(task_id) = 16),
    state       TEXT NOT NULL,
    may_repeat  INTEGER NOT NULL,
    ended_on_s  REAL NOT NULL,
    request_key TEXT
) WITHOUT ROWID;
CREATE UNIQUE INDEX remembered_request ON remembered (request_key) WHERE request_key IS NOT NULL;

INSERT INTO body SELECT seq, body FROM old_task ORDER BY seq;
INSERT INTO task
SELECT
    seq, task_id, state, priority, turn, kind, is_once, retries, length(body), accepted_wall_s, queue_key, request_key,
    attempt, tries, placement, known, is_offered, home_node, placed_on, fence, due_on_s, expires_on_s,
    deadline_on_s, lease_on_s, ended_on_s, ended_wall_s, waiting_for, NULL, 0
FROM old_task ORDER BY seq;

CREATE INDEX task_ready ON task (priority DESC, turn) WHERE state = 'ready';
CREATE INDEX task_due ON task (due_on_s) WHERE state = 'delayed';
CREATE INDEX task_running ON task (seq) WHERE state = 'running';
CREATE INDEX task_expiring ON task (expires_on_s)
    WHERE expires_on_s IS NOT NULL AND state IN ('delayed', 'blocked', 'ready', 'running');
CREATE INDEX task_lapsing ON task (lease_on_s)
    WHERE lease_on_s IS NOT NULL AND placement IS NOT NULL AND state IN ('delayed', 'blocked', 'ready');
CREATE INDEX task_overdue ON task (lease_on_s) WHERE lease_on_s IS NOT NULL AND state = 'handed_over';
CREATE INDEX task_placed ON task (seq)
    WHERE placement IS NOT NULL AND state IN ('delayed', 'blocked', 'ready', 'running');
CREATE INDEX task_key ON task (queue_key, turn)
    WHERE queue_key IS NOT NULL AND state IN ('delayed', 'blocked', 'ready', 'running', 'handed_over');
CREATE INDEX task_ended ON task (ended_on_s) WHERE ended_on_s IS NOT NULL;
CREATE UNIQUE INDEX task_request ON task (request_key) WHERE request_key IS NOT NULL;
