"""The coordinator of a fleet: node register, ledger, placement across regions, content store."""
