"""When a silent node is stale. A value for the owner; says nothing of what happens to its work (law 6)."""

from __future__ import annotations

from skerry.clock import Instant

MISSED_INTERVALS = 3


def is_stale(last_heard: Instant, now: Instant, state_interval_s: float) -> bool:
    """Decide whether a node last heard then has missed MISSED_INTERVALS of its states.

    Heard in an earlier boot of this machine: stale once three intervals of the present boot have passed.
    """
    silence_s = now.since(last_heard) if now.boot_id == last_heard.boot_id else now.uptime_s
    return silence_s > MISSED_INTERVALS * state_interval_s
