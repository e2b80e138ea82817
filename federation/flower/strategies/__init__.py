"""Federated strategies, one a file. All stand behind `Guarded`, which lets only admitted replies through."""
