"""Samples of a duration and what is reported of them."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager


def percentile(samples: Sequence[float], share: float) -> float:
    """Return the sample below which `share` (0-1) of them lie: nearest rank, so it was really measured.

    Raises ValueError without samples.
    """
    if not samples:
        raise ValueError("no samples")
    ranked = sorted(samples)
    return ranked[max(0, math.ceil(share * len(ranked)) - 1)]


def median_of(repeats: int, measure: Callable[[], float]) -> float:
    """Return the median of `repeats` measurements."""
    return statistics.median(measure() for _ in range(repeats))


@contextmanager
def timed(samples: list[float]) -> Iterator[None]:
    """Append how long the block took, seconds; a block that fails adds nothing."""
    began = time.perf_counter()
    yield
    samples.append(time.perf_counter() - began)


def milliseconds(samples: Sequence[float], share: float) -> float:
    """Return a percentile of samples in seconds, as milliseconds."""
    return percentile(samples, share) * 1000
