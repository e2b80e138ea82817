"""Measurements with goals, one module a benchmark; run with `python -m benchmarks NAME`."""
