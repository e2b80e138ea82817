"""Federated learning: experience, local updates, rounds and aggregation."""
