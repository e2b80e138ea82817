"""The gate: gives a learned policy a bounded share of the decisions, compares, and takes it away. Pure."""
