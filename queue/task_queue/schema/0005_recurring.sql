-- Recurring tasks. spec: as given; progress: how far it has come. look_on_s, look_wall_s: when time asks for it, in
-- powered-on seconds of the store or on the wall clock.
CREATE TABLE recurring (
    name         TEXT PRIMARY KEY,
    recurring_id BLOB NOT NULL CHECK (length(recurring_id) = 16),
    look_on_s    REAL,
    look_wall_s  REAL,
    spec         BLOB NOT NULL,
    progress     BLOB NOT NULL
);
CREATE INDEX recurring_on ON recurring (look_on_s) WHERE look_on_s IS NOT NULL;
CREATE INDEX recurring_wall ON recurring (look_wall_s) WHERE look_wall_s IS NOT NULL;
