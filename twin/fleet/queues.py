"""The queues of all devices as arrays [field, slot, episode, device], each kept in the order of its rule.

Owns insertion and removal; knows nothing of time. A key decides the place: higher goes first, equals in order
of arrival. Empty slots hold zeros, no deadline and the lowest key, so that sums over them change nothing.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

FIELDS = ("key", "service", "tail", "load", "weight", "deadline", "rate")
KEY, SERVICE, TAIL, LOAD, WEIGHT, DEADLINE, RATE = range(len(FIELDS))
TASK, KIND = range(2)
_EMPTY = np.array([-np.inf, 0.0, 0.0, 0.0, 0.0, np.inf, 0.0])
_FIRST_SLOTS = 8


class Queues:
    """All queues of a batch. values: [field, slot, episode, device]; names: task and kind numbers."""

    def __init__(self, episodes: int, devices: int) -> None:
        """Start empty."""
        self.length: Ints = np.zeros((episodes, devices), dtype=np.int64)
        self.values: Floats = np.empty((len(FIELDS), 0, episodes, devices))
        self.names: Ints = np.empty((2, 0, episodes, devices), dtype=np.int64)
        self._grow(_FIRST_SLOTS)

    @property
    def longest(self) -> int:
        """How many slots any queue uses now."""
        return int(self.length.max(initial=0))

    def insert(self, e: Ints, d: Ints, values: Floats, names: Ints, place: Ints | None = None) -> None:
        """Put one task into each of the queues (e, d).  values: [field, n]; place: None: by key."""
        if self.longest + 1 > self.values.shape[1]:
            self._grow(2 * self.values.shape[1])
        held = self.longest + 1
        column, ids = self.values[:, :held, e, d], self.names[:, :held, e, d]
        by_key: Ints = (column[KEY] >= values[KEY]).sum(axis=0)
        there = by_key if place is None else place
        slots = np.arange(held)[:, None]
        source = np.maximum(slots - (slots > there), 0)
        at = slots == there
        self.values[:, :held, e, d] = np.where(at, values[:, None], _pick(column, source))
        self.names[:, :held, e, d] = np.where(at, names[:, None], _pick(ids, source))
        self.length[e, d] += 1

    def remove(self, e: Ints, d: Ints, slot: Ints) -> None:
        """Take one task out of each of the queues (e, d)."""
        held = min(self.longest + 1, self.values.shape[1])
        column, ids = self.values[:, :held, e, d], self.names[:, :held, e, d]
        slots = np.arange(held)[:, None]
        source = np.minimum(slots + (slots >= slot), held - 1)
        left = self.length[e, d] - 1
        gone = slots >= left
        self.values[:, :held, e, d] = np.where(gone, _EMPTY[:, None, None], _pick(column, source))
        self.names[:, :held, e, d] = np.where(gone, 0, _pick(ids, source))
        self.length[e, d] = left

    def _grow(self, slots: int) -> None:
        _, had, episodes, devices = self.values.shape
        values = np.empty((len(FIELDS), slots, episodes, devices))
        values[:] = _EMPTY[:, None, None, None]
        names = np.zeros((2, slots, episodes, devices), dtype=np.int64)
        values[:, :had], names[:, :had] = self.values, self.names
        self.values, self.names = values, names


def _pick(column: NDArray[Any], source: Ints) -> NDArray[Any]:
    return column[:, source, np.arange(source.shape[1])[None, :]]
