"""The durable task queue: states, leases, fences, outbox, inbox and ledger, over a synchronous store port."""
