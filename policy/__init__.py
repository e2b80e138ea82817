"""Which task runs on which device: traditional schedulers, the rule guard, the record of decisions."""
