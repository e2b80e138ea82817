"""How often something may happen. Owns the count over the last minute; on the boot clock."""

from __future__ import annotations

from collections import deque

from skerry.clock import Instant

WINDOW_S = 60.0


class Pace:
    """At most so many in any minute."""

    def __init__(self, per_minute: int) -> None:
        """Start with nothing taken."""
        self._taken: deque[Instant] = deque(maxlen=per_minute)

    def take(self, now: Instant) -> float:
        """Take one and return 0.0, or return the seconds until one is free."""
        limit = self._taken.maxlen or 1
        if len(self._taken) == limit and now.since(self._taken[0]) < WINDOW_S:
            return WINDOW_S - now.since(self._taken[0])
        self._taken.append(now)
        return 0.0
