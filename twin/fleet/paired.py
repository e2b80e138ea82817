"""Two schedulers on the same episodes: ratios and differences with bootstrap intervals."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

RESAMPLES = 4000
#: Evaluations draw their episodes under this seed; training and tuning never do.
HELD_OUT_SEED = 20_261


@dataclass(frozen=True, kw_only=True)
class Interval:
    """An estimate with its 95 % bootstrap interval."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        """As people read it."""
        return f"{self.value:.3f} (95 %: {self.low:.3f} to {self.high:.3f})"


def ratio(ours: Floats, theirs: Floats, *, seed: int = 0) -> Interval:
    """Return mean(ours) / mean(theirs), episodes resampled in pairs."""
    picks = _resampled(len(ours), seed)
    spread = ours[picks].mean(axis=1) / theirs[picks].mean(axis=1)
    return _interval(float(ours.mean() / theirs.mean()), spread)


def difference(ours: Floats, theirs: Floats, *, seed: int = 0) -> Interval:
    """Return mean(ours - theirs), episodes resampled in pairs."""
    gap = ours - theirs
    return _interval(float(gap.mean()), gap[_resampled(len(gap), seed)].mean(axis=1))


def wins(ours: Floats, theirs: Floats) -> float:
    """Return the share of episodes on which ours is lower."""
    return float((ours < theirs).mean())


def _resampled(count: int, seed: int) -> NDArray[np.int64]:
    rng = np.random.Generator(np.random.Philox(key=[seed, count]))
    return rng.integers(0, count, size=(RESAMPLES, count))


def _interval(value: float, spread: Floats) -> Interval:
    low, high = np.quantile(spread, (0.025, 0.975))
    return Interval(value=value, low=float(low), high=float(high))
