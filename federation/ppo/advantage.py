"""How much better a decision went than its likes. Owns returns and the baseline of copies."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def returns_of(rewards: Floats, discount: float) -> Floats:
    """Return the discounted sum of what came from each step on.  rewards: [steps, episodes]."""
    found = np.zeros_like(rewards)
    following = np.zeros(rewards.shape[1])
    for step in range(len(rewards) - 1, -1, -1):
        following = rewards[step] + discount * following
        found[step] = following
    return found


def against_copies(excess: Floats, copies: int) -> Floats:
    """Subtract, step by step, the mean of the copies of the same arrivals; unbiased for a small group.

    excess: [steps, episodes], copies of one stream side by side. What all copies share (the arrivals' luck)
    cancels; × copies / (copies - 1) gives back what each took of its own mean.
    """
    steps, episodes = excess.shape
    grouped = excess.reshape(steps, episodes // copies, copies)
    centred: Floats = (grouped - grouped.mean(axis=2, keepdims=True)) * (copies / (copies - 1))
    return centred.reshape(steps, episodes)


def explained_variance(expected: Floats, found: Floats) -> float:
    """Return the share of the returns' variance that the critic foresaw; 0 for constant returns."""
    spread = float(found.var())
    return 0.0 if spread == 0.0 else 1.0 - float((found - expected).var()) / spread
