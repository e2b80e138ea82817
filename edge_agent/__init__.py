"""The agent of one edge machine: its queue, local decisions, executors and uplink, through outages alone."""
