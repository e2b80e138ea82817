"""The coordinator's durable state behind a port: register, tasks, placements, command logs, marks, losses."""
