"""Hardware of one node: discovery, telemetry and the child processes that execute on it."""
