"""When the coordinator asks its nodes to hold back what waits in their outboxes. Decides; knows no queue.

Shed early, while there is still time to answer: a job that is only told "later" costs a fraction of one that
is done, and nothing is lost by it, for what is refused stays in its sender's outbox. Presence, births and
reports are always taken, so that nobody is called silent for being held back.
"""

from __future__ import annotations

from skerry.clock import Instant

#: Jobs waiting above which rows are refused, and down to which: a tenth of what the queue can hold, and less.
BEGINS_AT = 2_000
ENDS_AT = 200
#: When a node that was refused may ask again, seconds; each adds its own share of as much (see Links).
RETRY_AFTER_S = 15.0


class Shedding:
    """Watches how many jobs wait."""

    def __init__(self, *, retry_after_s: float = RETRY_AFTER_S) -> None:
        """retry_after_s: what nodes are told."""
        self.retry_after_s = retry_after_s
        self._until: Instant | None = None

    @property
    def is_on(self) -> bool:
        """Rows are refused now."""
        return self._until is not None

    def measured(self, waiting: int, now: Instant) -> float | None:
        """Take a measurement; return the retry-after to announce, 0.0 for the end of it, None for no change.

        What was announced ends by itself; while too much waits it is announced again in time.
        """
        if waiting > (ENDS_AT if self.is_on else BEGINS_AT):
            if self._until is not None and now.since(self._until) < -self.retry_after_s / 2:
                return None
            self._until = now.plus(self.retry_after_s)
            return self.retry_after_s
        if self._until is None:
            return None
        self._until = None
        return 0.0
