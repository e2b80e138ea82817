"""The circuit breaker of one executor. Pure: decides whether its device may be used and when to try again."""

from __future__ import annotations

from skerry.clock import Instant

#: 2**20 waits of half a second are above any limit: more doublings change nothing.
_MOST_DOUBLINGS = 20


class Breaker:
    """Opens on a fault; a probe that succeeds closes it; an attempt that succeeds forgets the faults.

    The wait doubles with each fault since the last success, up to limit_s.
    """

    def __init__(self, *, base_s: float, limit_s: float) -> None:
        """Start closed."""
        self._base_s = base_s
        self._limit_s = limit_s
        self._faults = 0
        self._open_until: Instant | None = None
        self.reason = ""

    @property
    def is_open(self) -> bool:
        """Decide whether the device must not be used: from a fault until a probe succeeded."""
        return self._open_until is not None

    def fault(self, now: Instant, reason: str, *, share: float) -> None:
        """Open.

        share: 0 to 1, from a random source; the wait lies between half and all of its full length.
        """
        full_s = min(self._limit_s, self._base_s * 2.0 ** min(self._faults, _MOST_DOUBLINGS))
        self._faults += 1
        self._open_until = now.plus(full_s * (0.5 + share / 2))
        self.reason = reason

    def wait_s(self, now: Instant) -> float:
        """Return the seconds until the next probe; 0.0 when it is due."""
        return max(0.0, self._open_until.since(now)) if self._open_until else 0.0

    def probed(self) -> None:
        """Close, but remember the faults: the next one waits longer still."""
        self._open_until = None
        self.reason = ""

    def succeeded(self) -> None:
        """Close and forget the faults."""
        self.probed()
        self._faults = 0

    def __repr__(self) -> str:
        state = f"open: {self.reason}" if self.is_open else "closed"
        return f"<Breaker {state}, {self._faults} faults>"
