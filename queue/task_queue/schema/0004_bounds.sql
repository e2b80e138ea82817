-- Bounds: the class of each message, so that telemetry can be found when room is short, and the loss ledger.
ALTER TABLE outbox ADD COLUMN class TEXT NOT NULL DEFAULT 'task' CHECK (class IN ('task', 'state', 'telemetry'));
UPDATE outbox SET class = 'telemetry' WHERE kind = 'decision.recorded';
UPDATE outbox SET class = 'state'
WHERE kind IN ('loss.reported', 'store.salvaged', 'policy.report', 'gate.evidence');
CREATE INDEX outbox_telemetry ON outbox (lane, seq) WHERE class = 'telemetry';

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
