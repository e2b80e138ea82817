"""Fixed inputs on which a policy is tried before it may decide anything. Owns the inputs; needs numpy."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from policy.features import C, F

Float32s = NDArray[np.float32]

#: How many candidates each golden decision has.
GOLDEN_SIZES = (1, 2, 7, 30)


@lru_cache(maxsize=1)
def golden_inputs() -> tuple[tuple[Float32s, Float32s], ...]:
    """Return (rows [candidates, F], context [C]) of each golden decision; always the same numbers."""
    rng = np.random.Generator(np.random.Philox(key=[2024, 9]))
    return tuple((_numbers(rng, (size, F)), _numbers(rng, (C,))) for size in GOLDEN_SIZES)


def _numbers(rng: np.random.Generator, shape: tuple[int, ...]) -> Float32s:
    """Numbers spread as features are: most within 0-1, some beyond."""
    return (rng.random(shape) * 1.5 + 0.3 * rng.standard_normal(shape)).astype(np.float32)
