"""The agent of one edge machine: queue, local decisions, executors and the uplink, on its own through outages."""
