-- name: get_run
SELECT body FROM runs WHERE run_id = :run_id;

-- name: put_run
INSERT INTO runs (run_id, state, body) VALUES (:run_id, :state, :body)
ON CONFLICT (run_id) DO UPDATE SET state = excluded.state, body = excluded.body;

-- name: all_runs
SELECT body FROM runs ORDER BY arrival DESC;

-- name: add_version
INSERT INTO versions (run_id, version, body) VALUES (:run_id, :version, :body);

-- name: versions_of
SELECT body FROM versions WHERE run_id = :run_id ORDER BY version;

-- name: get_entry
SELECT body FROM entries WHERE id = :id;

-- name: put_entry
INSERT INTO entries (id, run_id, version, node, state, body)
VALUES (:id, :run_id, :version, :node, :state, :body)
ON CONFLICT (id) DO UPDATE SET state = excluded.state, body = excluded.body;

-- name: entries_of
-- states: JSON array, or null for all. node: null for all.
SELECT body FROM entries
WHERE run_id = :run_id
  AND (:node IS NULL OR node = :node)
  AND (:states IS NULL OR state IN (SELECT value FROM json_each(:states)))
ORDER BY version, node;

-- name: get_payload
SELECT payload FROM entries WHERE id = :id;

-- name: put_payload
UPDATE entries SET payload = :payload WHERE id = :id;

-- name: add_refusal
INSERT INTO refusals (run_id, node, instruction_id, code, reason, count)
VALUES (:run_id, :node, :instruction_id, :code, :reason, 1)
ON CONFLICT (run_id, node, instruction_id, code) DO UPDATE SET count = count + 1;

-- name: refusals_of
SELECT run_id, node, instruction_id, code, reason, count FROM refusals
WHERE run_id = :run_id ORDER BY node, instruction_id, code;
