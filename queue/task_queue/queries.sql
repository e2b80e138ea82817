-- Every statement of the store, by name. Transitions are named on_<event>; each names the states it may meet.

-- Transitions -----------------------------------------------------------------------------------------

-- name: on_due
-- Make a due task ready, or let it wait for its key.
UPDATE task SET
    state = :state, due_on_s = :due_on_s,
    last_event = :last_event, events = :events
WHERE seq = :seq AND state IN ('delayed');

-- name: on_unblocked
-- Let the next task of a key go.
UPDATE task SET
    state = :state,
    last_event = :last_event, events = :events
WHERE seq = :seq AND state IN ('blocked');

-- name: on_started
-- Begin an attempt of a claimed task.
UPDATE task SET
    state = :state, attempt = :attempt, tries = :tries, fence = :fence, waiting_for = :waiting_for,
    last_event = :last_event, events = :events
WHERE seq = :seq AND state IN ('ready');

-- name: on_succeeded
-- Commit a success.
UPDATE task SET
    state = :state, ended_on_s = :ended_on_s, ended_wall_s = :ended_wall_s,
    fence = :fence,
    last_event = :last_event, events = :events
WHERE seq = :seq AND state IN ('running');

-- name: on_retried
-- Give a task another try.
UPDATE task SET
    state = :state, tries = :tries, due_on_s = :due_on_s, waiting_for = :waiting_for,
    last_event = :last_event, events = :events
WHERE seq = :seq AND state IN ('running');

-- name: on_exhausted
-- Park a task that failed for good, or can never run here.
UPDATE task SET
    state = :state, ended_on_s = :ended_on_s, ended_wall_s = :ended_wall_s,
    fence = :fence, tries = :tries,
    last_event = :last_event, events = :events
WHERE seq = :seq AND state IN ('ready', 'running');

-- name: on_interrupted
-- Settle an attempt that was cut off.
UPDATE task SET
    state = :state, ended_on_s = :ended_on_s, ended_wall_s = :ended_wall_s,
    fence = :fence, tries = :tries,
    last_event = :last_event, events = :events
WHERE seq = :seq AND state IN ('running');

-- name: on_handed_over
-- Offer a claimed task to the coordinator.
UPDATE task SET
    state = :state, is_offered = :is_offered, placed_on = :placed_on, waiting_for = :waiting_for,
    lease_on_s = :lease_on_s,
    last_event = :last_event, events = :events
WHERE seq = :seq AND state IN ('ready');

-- name: on_returned
-- Commit the end that a handed-over task met elsewhere.
UPDATE task SET
    state = :state, ended_on_s = :ended_on_s, ended_wall_s = :ended_wall_s,
    fence = :fence, known = :known, attempt = :attempt, placement = :placement,
    last_event = :last_event, events = :events
WHERE seq = :seq AND state IN ('delayed', 'blocked', 'ready', 'running', 'handed_over');

-- name: on_expired
-- End a task whose time ran out, here or elsewhere.
UPDATE task SET
    state = :state, ended_on_s = :ended_on_s, ended_wall_s = :ended_wall_s,
    fence = :fence,
    last_event = :last_event, events = :events
WHERE seq = :seq AND state IN ('delayed', 'blocked', 'ready', 'running', 'handed_over');

-- name: on_cancelled
-- End a task at the submitter's wish.
UPDATE task SET
    state = :state, ended_on_s = :ended_on_s, ended_wall_s = :ended_wall_s,
    fence = :fence,
    last_event = :last_event, events = :events
WHERE seq = :seq AND state IN ('delayed', 'blocked', 'ready', 'running', 'handed_over');

-- name: on_dropped
-- Let go of a placed task.
UPDATE task SET
    state = :state, placement = :placement, ended_on_s = :ended_on_s, ended_wall_s = :ended_wall_s,
    waiting_for = :waiting_for, lease_on_s = :lease_on_s,
    last_event = :last_event, events = :events
WHERE seq = :seq AND state IN ('delayed', 'blocked', 'ready', 'running');

-- name: on_replayed
-- Give a dead task all its tries again.
UPDATE task SET
    state = :state, turn = :turn, tries = :tries, ended_on_s = :ended_on_s,
    ended_wall_s = :ended_wall_s, waiting_for = :waiting_for, expires_on_s = :expires_on_s,
    deadline_on_s = :deadline_on_s,
    last_event = :last_event, events = :events
WHERE seq = :seq AND state IN ('dead');

-- name: on_placed
-- Take a task again under a new placement.
UPDATE task SET
    state = :state, turn = :turn, tries = :tries, ended_on_s = :ended_on_s,
    ended_wall_s = :ended_wall_s, waiting_for = :waiting_for, placement = :placement, known = :known,
    home_node = :home_node, lease_on_s = :lease_on_s,
    last_event = :last_event, events = :events
WHERE seq = :seq AND state IN ('handed_over', 'dead', 'cancelled');

-- Tasks -----------------------------------------------------------------------------------------------

-- name: insert_task
-- Accept a task, unless its id or key is known; what a new row does not say has its default.
INSERT INTO task (
    seq, task_id, state, priority, turn, kind, is_once, retries, size_bytes, accepted_wall_s, queue_key,
    request_key, placement, known, home_node, due_on_s, expires_on_s, deadline_on_s, lease_on_s
) VALUES (
    :seq, :task_id, :state, :priority, :turn, :kind, :is_once, :retries, :size_bytes, :accepted_wall_s,
    :queue_key, :request_key, :placement, :known, :home_node, :due_on_s, :expires_on_s, :deadline_on_s, :lease_on_s
) ON CONFLICT DO NOTHING;

-- name: newest_task
-- The highest id: a task with a higher one is not known.
SELECT max(task_id) FROM task;

-- name: insert_body
-- Keep a task as it was submitted.
INSERT INTO body (seq, body) VALUES (:seq, :body);

-- name: amend_task
-- Write what may change without a change of state.
UPDATE task SET
    placement = :placement, known = :known, home_node = :home_node, placed_on = :placed_on,
    lease_on_s = :lease_on_s, waiting_for = :waiting_for, last_event = :last_event, events = :events
WHERE seq = :seq;

-- name: delete_task
-- Forget an ended task.
DELETE FROM task WHERE seq = :seq AND ended_on_s IS NOT NULL;

-- name: delete_body
-- Forget what was submitted.
DELETE FROM body WHERE seq = :seq;

-- name: task_by_id
-- One task.
SELECT * FROM task WHERE task_id = :task_id;

-- name: claimed
-- The tasks whose numbers a JSON list holds, in its order, each with its body.
SELECT task.*, body.body FROM json_each(:seqs) AS wanted CROSS JOIN task ON task.seq = wanted.value
LEFT JOIN body ON body.seq = task.seq;

-- name: body
-- A task as it was submitted.
SELECT body FROM body WHERE seq = :seq;

-- name: task_by_request
-- Which task was accepted under a key.
SELECT task_id FROM task WHERE request_key = :request_key
UNION ALL SELECT task_id FROM remembered WHERE request_key = :request_key;

-- name: first_open
-- The oldest unended task of an ordering key.
SELECT * FROM task
WHERE queue_key IS NOT NULL AND state IN ('delayed', 'blocked', 'ready', 'running', 'handed_over')
    AND queue_key = :queue_key
ORDER BY turn LIMIT 1;

-- name: ready
-- Numbers of ready tasks in their order, from the index alone; read as far as needed.
SELECT seq FROM task WHERE state = 'ready' ORDER BY priority DESC, turn;

-- name: is_ready
-- A task's number, if it is ready.
SELECT seq FROM task WHERE state = 'ready' AND seq = :seq;

-- name: ready_of
-- Ready tasks of one priority, the oldest first, from the index alone; read as far as needed.
SELECT turn, seq FROM task WHERE state = 'ready' AND priority = :priority ORDER BY turn;

-- name: due
-- Delayed tasks whose time has come.
SELECT * FROM task WHERE state = 'delayed' AND due_on_s <= :on_s ORDER BY due_on_s LIMIT :limit;

-- name: expiring
-- Unended tasks, here, whose time ran out.
SELECT * FROM task
WHERE expires_on_s IS NOT NULL AND state IN ('delayed', 'blocked', 'ready', 'running')
    AND expires_on_s <= :on_s
ORDER BY expires_on_s LIMIT :limit;

-- name: lapsed
-- Placed tasks, not started, whose own lease ran out.
SELECT * FROM task
WHERE lease_on_s IS NOT NULL AND placement IS NOT NULL AND state IN ('delayed', 'blocked', 'ready')
    AND lease_on_s <= :on_s
ORDER BY lease_on_s LIMIT :limit;

-- name: overdue
-- Tasks that are elsewhere, whose time (or the wait for word after it) ran out.
SELECT * FROM task
WHERE lease_on_s IS NOT NULL AND state = 'handed_over' AND lease_on_s <= :on_s
ORDER BY lease_on_s LIMIT :limit;

-- name: ended_before
-- The tasks that ended first.
SELECT * FROM task WHERE ended_on_s IS NOT NULL AND ended_on_s < :on_s ORDER BY ended_on_s LIMIT :limit;

-- name: running
-- Tasks with an attempt under way.
SELECT * FROM task WHERE state = 'running' ORDER BY seq;

-- name: next_times
-- When time asks for something again: due, expiry, lapse of a lease, overdue elsewhere.
SELECT
    (SELECT due_on_s FROM task WHERE state = 'delayed' ORDER BY due_on_s LIMIT 1),
    (SELECT expires_on_s FROM task
     WHERE expires_on_s IS NOT NULL AND state IN ('delayed', 'blocked', 'ready', 'running')
     ORDER BY expires_on_s LIMIT 1),
    (SELECT lease_on_s FROM task
     WHERE lease_on_s IS NOT NULL AND placement IS NOT NULL AND state IN ('delayed', 'blocked', 'ready')
     ORDER BY lease_on_s LIMIT 1),
    (SELECT lease_on_s FROM task
     WHERE lease_on_s IS NOT NULL AND state = 'handed_over' ORDER BY lease_on_s LIMIT 1);

-- name: held_placements
-- Placed tasks that have not ended, oldest first.
SELECT task_id FROM task
WHERE placement IS NOT NULL AND state IN ('delayed', 'blocked', 'ready', 'running')
ORDER BY seq LIMIT :limit;

-- name: list_tasks
-- A page of tasks, newest first, each with its body and its newest two events; :leased and :states are JSON lists,
-- the claimed ones are 'leased'.
SELECT task.*, body.body, event.*, before.* FROM task
LEFT JOIN body ON body.seq = task.seq
LEFT JOIN event ON event.id = task.last_event
LEFT JOIN event AS before ON before.id = event.prev
WHERE task_id < :below AND task_id >= :floor
    AND (:kind IS NULL OR kind = :kind)
    AND (:priority IS NULL OR priority = :priority)
    AND (:queue_key IS NULL OR queue_key = :queue_key)
    AND (:request_key IS NULL OR request_key = :request_key)
    AND (:since_s IS NULL OR accepted_wall_s >= :since_s)
    AND (:until_s IS NULL OR accepted_wall_s < :until_s)
    AND (:states IS NULL OR iif(task.seq IN (SELECT value FROM json_each(:leased)), 'leased', state)
        IN (SELECT value FROM json_each(:states)))
ORDER BY task_id DESC LIMIT :limit;

-- name: stretch
-- Where a stretch of so many tasks ends, looking back from an id.
SELECT task_id FROM task WHERE task_id < :below ORDER BY task_id DESC LIMIT 1 OFFSET :rows;

-- name: count_ready
-- How many tasks are ready, by priority, from the index alone.
SELECT priority, count(*) FROM task WHERE state = 'ready' GROUP BY priority;

-- name: oldest_ready
-- The first ready task of a priority.
SELECT turn, task_id, accepted_wall_s FROM task
WHERE state = 'ready' AND priority = :priority ORDER BY turn LIMIT 1;

-- name: count_states
-- How many tasks are in each state: a scan, for checks only.
SELECT state, count(*) FROM task GROUP BY state;

-- Stories ---------------------------------------------------------------------------------------------

-- name: append_event
-- Write an event down.
INSERT INTO event (id, prev, at_wall_s, on_s, what, detail)
VALUES (:id, :prev, :at_wall_s, :on_s, :what, :detail);

-- name: replace_note
-- Let a note take the place of the note before it.
UPDATE event SET at_wall_s = :at_wall_s, on_s = :on_s, detail = :detail WHERE id = :id AND what = 'noted';

-- name: event
-- One event.
SELECT id, prev, at_wall_s, on_s, what, detail FROM event WHERE id = :id;

-- name: story
-- The events of a task, the newest first.
WITH RECURSIVE story AS (
    SELECT id, prev, at_wall_s, on_s, what, detail FROM event WHERE id = :newest
    UNION ALL
    SELECT event.id, event.prev, event.at_wall_s, event.on_s, event.what, event.detail
    FROM story JOIN event ON event.id = story.prev AND story.prev < story.id
)
SELECT id, prev, at_wall_s, on_s, what, detail FROM story;

-- name: delete_story
-- Forget the events of a task, but for so many of the newest.
DELETE FROM event WHERE id IN (
    WITH RECURSIVE story AS (
        SELECT id, prev FROM event WHERE id = :newest
        UNION ALL
        SELECT event.id, event.prev FROM story JOIN event ON event.id = story.prev AND story.prev < story.id
    )
    SELECT id FROM story LIMIT -1 OFFSET :keep
);

-- What is left of forgotten tasks ----------------------------------------------------------------------

-- name: remember
-- Keep what recognises a task.
INSERT INTO remembered (task_id, state, may_repeat, ended_on_s, request_key)
VALUES (:task_id, :state, :may_repeat, :ended_on_s, :request_key)
ON CONFLICT DO NOTHING;

-- name: remembered
-- What is left of a task.
SELECT task_id, state, may_repeat, ended_on_s, request_key FROM remembered WHERE task_id = :task_id;

-- name: newest_remembered
-- The highest id of which something is left: a task with a higher one cannot be among them.
SELECT max(task_id) FROM remembered;

-- name: forget
-- Let go of what is left of a task.
DELETE FROM remembered WHERE task_id = :task_id;

-- name: forget_before
-- Let go of what has been remembered for long enough, among the first ids.
DELETE FROM remembered
WHERE task_id IN (SELECT task_id FROM remembered ORDER BY task_id LIMIT :limit) AND ended_on_s < :on_s;

-- Recurring tasks -------------------------------------------------------------------------------------

-- name: put_recurring
-- Keep a recurring task with how far it has come.
INSERT INTO recurring (name, recurring_id, look_on_s, look_wall_s, spec, progress)
VALUES (:name, :recurring_id, :look_on_s, :look_wall_s, :spec, :progress)
ON CONFLICT (name) DO UPDATE SET
    look_on_s = excluded.look_on_s, look_wall_s = excluded.look_wall_s, spec = excluded.spec,
    progress = excluded.progress;

-- name: delete_recurring
-- Forget a recurring task.
DELETE FROM recurring WHERE name = :recurring;

-- name: recurring_by_name
-- One recurring task.
SELECT recurring_id, spec, progress FROM recurring WHERE name = :recurring;

-- name: all_recurring
-- Every recurring task.
SELECT recurring_id, spec, progress FROM recurring ORDER BY name;

-- name: due_recurring
-- Recurring tasks to look at: by the powered-on clock, or by the wall clock.
SELECT recurring_id, spec, progress FROM recurring
WHERE (look_on_s IS NOT NULL AND look_on_s <= :on_s)
    OR (look_wall_s IS NOT NULL AND look_wall_s <= :wall_s)
ORDER BY name LIMIT :limit;

-- name: next_recurring
-- When to look at one again, by each clock.
SELECT
    (SELECT look_on_s FROM recurring WHERE look_on_s IS NOT NULL ORDER BY look_on_s LIMIT 1),
    (SELECT look_wall_s FROM recurring WHERE look_wall_s IS NOT NULL ORDER BY look_wall_s LIMIT 1);

-- Streams ---------------------------------------------------------------------------------------------

-- name: append_outbox
-- Queue a message.
INSERT INTO outbox (id, class, kind, key, "coalesce", body)
VALUES (:id, :row_class, :kind, :key, :coalesce, :body);

-- name: newest_coalesced
-- The latest message of a coalescing key in a lane.
SELECT max(id) FROM outbox INDEXED BY outbox_coalesce
WHERE "coalesce" != '' AND "coalesce" = :coalesce AND id BETWEEN :first AND :last;

-- name: delete_coalesced
-- Take the older messages of a coalescing key in a lane back.
DELETE FROM outbox INDEXED BY outbox_coalesce
WHERE "coalesce" != '' AND "coalesce" = :coalesce AND id BETWEEN :first AND :last
RETURNING class, length(body);

-- name: trim_slice
-- What a slice of a lane's messages holds, by class.
SELECT class, count(*), sum(length(body)), max(id) FROM (
    SELECT class, body, id FROM outbox WHERE id BETWEEN :first AND :last ORDER BY id LIMIT :limit
) GROUP BY class;

-- name: is_all_of_outbox
-- Whether there are no messages but those.
SELECT (SELECT min(id) FROM outbox) >= :first AND (SELECT max(id) FROM outbox) <= :last;

-- name: empty_outbox
-- Delete every message: whole pages, of which nothing is written to the log.
DELETE FROM outbox;

-- name: trim_outbox
-- Delete what the other side has committed.
DELETE FROM outbox WHERE id BETWEEN :first AND :last;

-- name: evict_slice
-- What a slice of a lane's oldest telemetry holds.
SELECT count(*), sum(length(body)), max(id) FROM (
    SELECT body, id FROM outbox INDEXED BY outbox_telemetry
    WHERE class = 'telemetry' AND id BETWEEN :first AND :last ORDER BY id LIMIT :limit
);

-- name: evict_outbox
-- Delete a lane's telemetry up to a message.
DELETE FROM outbox INDEXED BY outbox_telemetry
WHERE class = 'telemetry' AND id BETWEEN :first AND :last;

-- name: outbox
-- Messages of a lane, in order.
SELECT id, kind, key, body FROM outbox WHERE id BETWEEN :first AND :last ORDER BY id LIMIT :limit;

-- name: count_outbox
-- How many messages wait in each lane, by its number: a scan, for checks only.
SELECT id >> 48, count(*) FROM outbox GROUP BY id >> 48;

-- name: add_loss
-- Count a loss.
INSERT INTO loss (class, reason, rows, bytes) VALUES (:lost_class, :reason, :rows, :size_bytes)
ON CONFLICT (class, reason) DO UPDATE SET rows = rows + excluded.rows, bytes = bytes + excluded.bytes;

-- name: losses
-- The loss ledger.
SELECT class, reason, rows, bytes, rows_told FROM loss ORDER BY class, reason;

-- name: losses_told
-- Take note of a report.
UPDATE loss SET rows_told = :rows WHERE class = :lost_class AND reason = :reason;

-- name: mark_inbox
-- Raise the mark of a stream.
INSERT INTO inbox (source, epoch, lane, upto) VALUES (:source, :epoch, :lane, :upto)
ON CONFLICT (source, epoch, lane) DO UPDATE SET upto = excluded.upto WHERE excluded.upto > upto;

-- name: inbox_mark
-- The mark of a stream.
SELECT upto FROM inbox WHERE source = :source AND epoch = :epoch AND lane = :lane;

-- The store -------------------------------------------------------------------------------------------

-- name: put_meta
-- Keep a named value.
INSERT INTO meta (name, value) VALUES (:name, :value)
ON CONFLICT (name) DO UPDATE SET value = excluded.value;

-- name: meta
-- A named value.
SELECT value FROM meta WHERE name = :name;

-- name: create_store
-- Give a new store its epoch.
INSERT INTO store (id, epoch, session, book) VALUES (1, :epoch, 0, :book) ON CONFLICT (id) DO NOTHING;

-- name: store
-- Epoch, session and book.
SELECT epoch, session, book FROM store WHERE id = 1;

-- name: begin_session
-- Take the store over: whoever held it can write no more.
UPDATE store SET session = session + 1;

-- name: save_book
-- Write the book, unless another session has taken the store over.
UPDATE store SET book = :book WHERE session = :session;
