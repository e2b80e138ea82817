"""Episodes side by side as arrays [episodes, devices(, kinds)] and [episodes, tasks]; short sites are padded.

Owns the stacking. A padded device supports nothing and is never chosen.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from twin.fleet.scenario import Episode, Scenario, draw

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class Batch:
    """Episodes as arrays; the fields are Episode's, with the episode as a first axis."""

    present: NDArray[np.bool_]  #: [episodes, devices]
    device_class: Ints
    unit_s: Floats
    supported: NDArray[np.bool_]
    tail_s: Floats
    unit_j: Floats
    load_s: Floats
    load_j: Floats
    memory_mb: Floats
    resident: Ints
    arrival_s: Floats
    kind: Ints
    size: Floats
    priority: Ints
    weight: Floats
    deadline_s: Floats
    noise: Floats


#: Fields with devices as their first axis, and what an absent device holds.
_PADDED = {
    "device_class": 0, "unit_s": 0.0, "supported": False, "tail_s": 0.0, "unit_j": 0.0,
    "load_s": 0.0, "load_j": 0.0, "memory_mb": 1.0, "resident": 0,
}  # fmt: skip


def batch_of(scenario: Scenario, seed: int, episodes: Sequence[int]) -> Batch:
    """Draw these episodes and stack them; one drawn several times is drawn once."""
    drawn = {number: draw(scenario, seed, number) for number in dict.fromkeys(episodes)}
    return stack([drawn[number] for number in episodes])


def stack(episodes: Sequence[Episode]) -> Batch:
    """Return the episodes as one batch.  They must have equally many tasks."""
    widest = max(len(one.device_class) for one in episodes)
    arrays: dict[str, Any] = {
        field.name: np.stack([_padded(field.name, getattr(one, field.name), widest) for one in episodes])
        for field in fields(Episode)
    }
    counts = np.array([len(one.device_class) for one in episodes])
    return Batch(present=np.arange(widest) < counts[:, None], **arrays)


def _padded(name: str, values: NDArray[Any], widest: int) -> NDArray[Any]:
    if name not in _PADDED or len(values) == widest:
        return values
    missing = np.full((widest - len(values), *values.shape[1:]), _PADDED[name], dtype=values.dtype)
    return np.concatenate([values, missing])
