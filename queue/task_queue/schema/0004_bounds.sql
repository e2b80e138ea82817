-- Bounds: messages with their class, so that telemetry is found when room is short, and the loss ledger.

-- A message lies in its lane's place: id is the lane's number (control 0, live 1, backlog 2) times 2^48, plus the
-- sequence number. Bodies lie in the leaves of one tree by id, the backlog at its end, where pages are filled whole.
DROP INDEX outbox_coalesce;
ALTER TABLE outbox RENAME TO outbox_before;
CREATE TABLE outbox (
    id       INTEGER PRIMARY KEY,
    class    TEXT NOT NULL CHECK (class IN ('task', 'state', 'telemetry')),
    kind     TEXT NOT NULL,
    key      TEXT NOT NULL,
    "coalesce" TEXT NOT NULL,
    body     BLOB NOT NULL
);
INSERT INTO outbox (id, class, kind, key, "coalesce", body)
SELECT
    ((CASE lane WHEN 'control' THEN 0 WHEN 'live' THEN 1 ELSE 2 END) << 48) + seq AS place,
    CASE
        WHEN kind = 'decision.recorded' THEN 'telemetry'
        WHEN kind IN ('loss.reported', 'store.salvaged', 'policy.report', 'gate.evidence') THEN 'state'
        ELSE 'task'
    END,
    kind, key, "coalesce", body
FROM outbox_before ORDER BY place;
DROP TABLE outbox_before;
CREATE INDEX outbox_coalesce ON outbox ("coalesce") WHERE "coalesce" != '';
CREATE INDEX outbox_telemetry ON outbox (class) WHERE class = 'telemetry';

-- The book counts what the outbox holds by class: [rows, bytes of body].
UPDATE store SET book = json_set(book, '$.by_class', json((
    SELECT json_group_object(class, json_array(held, size))
    FROM (SELECT class, count(*) AS held, sum(length(body)) AS size FROM outbox GROUP BY class)
)));

CREATE TABLE loss (
    class     TEXT NOT NULL,
    reason    TEXT NOT NULL,
    rows      INTEGER NOT NULL,
    bytes     INTEGER NOT NULL,
    rows_told INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (class, reason)
) WITHOUT ROWID;
