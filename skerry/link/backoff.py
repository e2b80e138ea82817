"""When to try again. Owns the delays; the caller owns timer and randomness."""

from __future__ import annotations

from random import Random

#: The highest ceiling while nobody is there to answer, seconds.
UNANSWERED_CAP_S = 60.0
#: No word of a coordinator keeps a node away for longer than by this, seconds.
MOST_SPREAD_S = 3600.0
#: What a try that nobody answers adds to the ceiling: about a hundredth of an outage in all.
_UNANSWERED_GROWTH = 1.005


class Backoff:
    """Full jitter under a ceiling that doubles over failures and short sessions; a long session resets it.

    A try that nobody answers burdens nobody: it hardly raises the ceiling, so that an end of the silence is
    met soon. Source: M. Brooker, "Exponential Backoff And Jitter", 2015 (full jitter).
    """

    def __init__(
        self, rng: Random, *, floor_s: float = 1.0, cap_s: float = 300.0, steady_s: float = 60.0
    ) -> None:
        """floor_s, cap_s: first and highest ceiling.  steady_s: a session this long resets the ceiling."""
        self._rng = rng
        self._floor_s = min(floor_s, cap_s)
        self._cap_s = cap_s
        self._steady_s = steady_s
        self._ceiling_s = self._floor_s
        self._spread_s = 0.0

    def hint(self, spread_s: float) -> None:
        """Draw no delay from less than spread_s (fleet size ÷ allowed rate, up to an hour); 0: forget it."""
        self._spread_s = min(max(0.0, spread_s), MOST_SPREAD_S)

    def next_delay_s(self, *, was_answered: bool = True) -> float:
        """Return how long to wait before the next try, and raise the ceiling.

        was_answered: the last try reached someone, who refused it or did not keep it for long.
        """
        cap_s = self._cap_s if was_answered else min(self._cap_s, UNANSWERED_CAP_S)
        ceiling_s = min(self._ceiling_s, cap_s)
        growth = 2.0 if was_answered else _UNANSWERED_GROWTH
        self._ceiling_s = min(cap_s, ceiling_s * growth)
        return self._rng.uniform(0.0, max(ceiling_s, self._spread_s))

    def session_ended(self, lasted_s: float) -> None:
        """Take note of a session: a long one clears the record, a short one counts as one more failure."""
        if lasted_s >= self._steady_s:
            self.wake()

    def wake(self) -> None:
        """Start over from the first ceiling: there is reason to believe that the next try works."""
        self._ceiling_s = self._floor_s
