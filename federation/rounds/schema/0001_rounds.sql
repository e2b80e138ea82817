-- Runs, versions, instructions with their replies. Bodies are MessagePack of the structs in ledger.py.

CREATE TABLE runs (
  arrival INTEGER PRIMARY KEY,
  run_id  TEXT NOT NULL UNIQUE,
  state   TEXT NOT NULL CHECK (state IN ('created', 'waiting', 'running', 'done', 'failed', 'cancelled')),
  body    BLOB NOT NULL
) STRICT;

CREATE TABLE versions (
  run_id  TEXT NOT NULL REFERENCES runs (run_id),
  version INTEGER NOT NULL,
  body    BLOB NOT NULL,
  PRIMARY KEY (run_id, version)
) STRICT, WITHOUT ROWID;

CREATE TABLE entries (
  id      TEXT PRIMARY KEY, -- of the instruction: one row, so one reply
  run_id  TEXT NOT NULL REFERENCES runs (run_id),
  version INTEGER NOT NULL,
  node    TEXT NOT NULL,
  state   TEXT NOT NULL
          CHECK (state IN ('open', 'superseded', 'received', 'late', 'accepted', 'refused')),
  body    BLOB NOT NULL,
  payload BLOB -- the packet of a reply without a verdict
) STRICT;

CREATE INDEX entries_by_run ON entries (run_id, version, node);

CREATE TRIGGER verdicts_are_final BEFORE UPDATE OF state, body ON entries
WHEN old.state IN ('accepted', 'refused')
BEGIN
  SELECT RAISE (ABORT, 'an entry with a verdict does not change');
END;

CREATE TABLE refusals (
  run_id         TEXT NOT NULL,
  node           TEXT NOT NULL,
  instruction_id TEXT NOT NULL,
  code           TEXT NOT NULL,
  reason         TEXT NOT NULL,
  count          INTEGER NOT NULL,
  PRIMARY KEY (run_id, node, instruction_id, code)
) STRICT, WITHOUT ROWID;
