"""Federated learning: rounds that survive outages, written as one Flower app.

Which module may import what (a test holds it):

- `values`, `wire`, `admission`, `trainer`, `rounds/`: neither flwr nor torch; agent and coordinator may
  import these.
- `flower/` (the app), `grid/` (in-process and durable), `run_worker`: import flwr; only child processes do,
  with the interpreter of the training environment.
- `ppo/`: imports torch; only inside a training child.
"""
