-- A handed-over row has a time at which it is looked at: its own expiry, then the end of the wait for word.
UPDATE task SET lease_on_s = expires_on_s WHERE state = 'handed_over';
CREATE INDEX task_overdue ON task (lease_on_s) WHERE lease_on_s IS NOT NULL AND state = 'handed_over';
