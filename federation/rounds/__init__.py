"""Rounds as the coordinator keeps and serves them: ledger, supervision of the worker, choice of participants.

Imports neither flwr nor torch.
"""
