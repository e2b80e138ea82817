"""Where in the fleet a task runs: snapshot, filter, score, plan, apply. Pure values and functions."""
