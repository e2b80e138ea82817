"""The traditional schedulers: one a file, pure and deterministic, listed by name in `registry`."""
