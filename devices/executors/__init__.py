"""Executors: the agent's side, the children's side, and the channel between them."""
