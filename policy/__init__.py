"""Which task runs on which device: traditional schedulers, the rule guard, and the record of every decision."""
