-- Every statement of the SQLite ledger, under a name, with its purpose.

-- name: get_meta
-- one small named value
SELECT value FROM meta WHERE name = :name;

-- name: put_meta
-- write one small named value
INSERT INTO meta VALUES (:name, :value) ON CONFLICT (name) DO UPDATE SET value = excluded.value;

-- name: get_node
-- one node of the register
SELECT body FROM node WHERE name = :name;

-- name: all_nodes
-- the register, by name
SELECT body FROM node ORDER BY name;

-- name: put_node
-- write a node, new or known
INSERT INTO node VALUES (:name, :body) ON CONFLICT (name) DO UPDATE SET body = excluded.body;

-- name: get_token
-- an enrolment token by the hash of its text
SELECT body FROM token WHERE digest = :digest;

-- name: put_token
-- write a token, new or known
INSERT INTO token VALUES (:digest, :body) ON CONFLICT (digest) DO UPDATE SET body = excluded.body;

-- name: get_task
-- one task
SELECT * FROM task WHERE task_id = :task_id;

-- name: put_task
-- write a task; arrival, home, kind and priority never change, nor does the task itself once it is known
INSERT INTO task (task_id, home_node, kind, state, priority, received, task, fence, node, command_seq, placed,
                  placements, excluded, waits, decision, outcome, attempts, ended_wall_s)
VALUES (:task_id, :home_node, :kind, :state, :priority, :received, :task, :fence, :node, :command_seq, :placed,
        :placements, :excluded, :waits, :decision, :outcome, :attempts, :ended_wall_s)
ON CONFLICT (task_id) DO UPDATE SET
    received = excluded.received, task = coalesce(task.task, excluded.task), state = excluded.state, fence = excluded.fence, node = excluded.node, command_seq = excluded.command_seq,
    placed = excluded.placed, placements = excluded.placements, excluded = excluded.excluded,
    waits = excluded.waits, outcome = excluded.outcome, attempts = excluded.attempts,
    ended_wall_s = excluded.ended_wall_s;

-- name: find_tasks
-- a page of tasks, newest first
SELECT * FROM task
WHERE (:state IS NULL OR state = :state) AND (:node = '' OR node = :node)
  AND (:home_node = '' OR home_node = :home_node) AND (:before = '' OR task_id < :before)
ORDER BY task_id DESC LIMIT :limit;

-- name: pending_tasks
-- waiting tasks in the order in which they are placed
SELECT * FROM task WHERE state = 'pending' ORDER BY priority DESC, arrival LIMIT :limit OFFSET :offset;

-- name: placed_tasks
-- tasks under a current placement
SELECT * FROM task WHERE state = 'placed' ORDER BY arrival;

-- name: placed_tasks_of
-- tasks under a current placement on one node
SELECT * FROM task WHERE state = 'placed' AND node = :node ORDER BY arrival;

-- name: count_tasks
-- how many tasks there are in each state, kept by triggers
SELECT state, count FROM task_count;

-- name: prune_tasks
-- forget the oldest final tasks; a trigger takes their placements along
DELETE FROM task WHERE arrival IN (
    SELECT arrival FROM task WHERE state IN ('ended', 'withdrawn') ORDER BY arrival LIMIT :excess);

-- name: forget_open_tasks
-- forget what has not ended; a trigger takes the placements along
DELETE FROM task WHERE state IN ('pending', 'placed');

-- name: add_placement
-- a new placement
INSERT INTO placement (task_id, fence, node, placed_wall_s, decision, ended, reason, ended_wall_s)
VALUES (:task_id, :fence, :node, :placed_wall_s, :decision, :ended, :reason, :ended_wall_s);

-- name: end_placement
-- how a placement ended; the first word stands
UPDATE placement SET ended = :ended, reason = :reason, ended_wall_s = :wall_s
WHERE task_id = :task_id AND fence = :fence AND ended = '';

-- name: placements_of
-- a task's placements, oldest first
SELECT * FROM placement WHERE task_id = :task_id ORDER BY number;

-- name: next_command
-- the next sequence number of one lane of one node's command log
INSERT INTO command_head VALUES (:node, :lane, 1, 0)
ON CONFLICT (node, lane) DO UPDATE SET last = last + 1 RETURNING last;

-- name: add_command
-- a command for a node
INSERT INTO command VALUES (:node, :lane, :seq, :kind, :key, :body);

-- name: commands_after
-- commands in order
SELECT seq, kind, key, body FROM command
WHERE node = :node AND lane = :lane AND seq > :after ORDER BY seq LIMIT :limit;

-- name: trim_commands
-- forget what the node has applied
DELETE FROM command WHERE node = :node AND lane = :lane AND seq <= :upto;

-- name: ack_commands
-- note up to where the node has applied its commands; never backwards, never above what was written
UPDATE command_head SET acked = min(last, max(acked, :upto)) WHERE node = :node AND lane = :lane;

-- name: get_head
-- one lane of a node's command log
SELECT last, acked FROM command_head WHERE node = :node AND lane = :lane;

-- name: get_mark
-- up to where a node's stream is applied
SELECT upto, session, counter FROM mark WHERE node = :node AND epoch = :epoch AND lane = :lane;

-- name: put_mark
-- move a mark
INSERT INTO mark VALUES (:node, :epoch, :lane, :upto, :session, :counter)
ON CONFLICT (node, epoch, lane) DO UPDATE SET
    upto = excluded.upto, session = excluded.session, counter = excluded.counter;

-- name: add_dead_letter
-- a row that could not be applied
INSERT INTO dead_letter (node, lane, seq, kind, body, reason, wall_s)
VALUES (:node, :lane, :seq, :kind, :body, :reason, :wall_s);

-- name: drop_dead_letters
-- keep the newest ones only
DELETE FROM dead_letter WHERE number <= (SELECT max(number) FROM dead_letter) - :keep;

-- name: dead_letters_before
-- a page of dead letters, newest first
SELECT * FROM dead_letter WHERE number < :before ORDER BY number DESC LIMIT :limit;

-- name: count
-- add to a counter, which stands still before a number grows out of its column
INSERT INTO counter VALUES (:name, :node, :reason, :by)
ON CONFLICT (name, node, reason) DO UPDATE SET count = min(count + excluded.count, 1 << 62);

-- name: all_counters
-- every counter
SELECT name, node, reason, count FROM counter ORDER BY name, node, reason;

-- name: get_document
-- one document
SELECT body FROM document WHERE kind = :kind AND name = :name;

-- name: documents_of
-- every document of a kind
SELECT name, body FROM document WHERE kind = :kind ORDER BY name;

-- name: drop_document
-- forget a document
DELETE FROM document WHERE kind = :kind AND name = :name;

-- name: put_document
-- write a document, new or known
INSERT INTO document VALUES (:kind, :name, :body)
ON CONFLICT (kind, name) DO UPDATE SET body = excluded.body;
