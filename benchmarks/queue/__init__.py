"""The durable queue beside its peers. Nothing is imported here: a measuring process loads what it needs."""
