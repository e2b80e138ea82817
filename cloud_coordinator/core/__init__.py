"""The coordinator's core: events with the time in, ledger changes and actions out. No clock, no socket."""
