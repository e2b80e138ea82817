"""The demo: a fleet of real processes that lives through an outage, and an independent reckoning of it."""
