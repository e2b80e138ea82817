"""Evidence that stays valid however often one looks: bets against "both arms do equally well".

In each cell the rarer arm's block is drawn at random, so when the policy makes no difference the rank of that
block among the cell's blocks is uniform whatever the load does. A score of the rank with mean zero is bet on
with fixed stakes; the mean of the wealths is an e-process: it exceeds 1/alpha with probability at most alpha,
ever (Ville). Sources: Waudby-Smith and Ramdas 2023, "Estimating means of bounded random variables by
betting"; Shin, Ramdas and Rinaldo 2022, "E-detectors", for the restarted form.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

#: Shares of the wealth that are put at stake, side by side: none needs to be tuned.
STAKES = (0.15, 0.3, 0.5, 0.7, 0.9)
#: Log wealth is kept within these: beyond, nothing is decided any more and sums would lose precision.
LOWEST, HIGHEST = -60.0, 60.0


class Bets(msgspec.Struct, kw_only=True):
    """Log wealth of each stake on one score."""

    log_wealth: list[float] = msgspec.field(default_factory=lambda: [0.0] * len(STAKES))

    @property
    def e_value(self) -> float:
        """Mean of the wealths."""
        return sum(map(math.exp, self.log_wealth)) / len(self.log_wealth)

    def bet(self, score: float, bound: float = 0.0) -> None:
        """Take one cell's score (at least -1) in: a bet that its mean is above `bound`."""
        self.log_wealth = [_grown(w, s, score, bound) for w, s in zip(self.log_wealth, STAKES, strict=True)]

    def restart_below_one(self) -> None:
        """Forget losses: from here on the bets watch for a change (average run length at least 1/alpha)."""
        self.log_wealth = [max(0.0, w) for w in self.log_wealth]


def _grown(log_wealth: float, stake: float, score: float, bound: float) -> float:
    factor = 1.0 + stake * (score - bound) / (1.0 + bound)
    return min(HIGHEST, max(LOWEST, log_wealth + math.log(factor)))


def rank_scores(values: Sequence[float], odd: int) -> tuple[float, float]:
    """Return how the odd block ranks: linear in [-1, 1], and extreme in [-1, n-1]; larger is worse.

    Both have mean zero when the odd block is drawn uniformly among the n; ties share their places.
    """
    n, own = len(values), values[odd]
    lower = sum(v < own for v in values)
    equal = sum(v == own for v in values) - 1
    linear = 2.0 * (lower + equal / 2) / (n - 1) - 1.0
    at_top = n / (equal + 1) if lower + equal == n - 1 else 0.0
    return linear, at_top - 1.0
