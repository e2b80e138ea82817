"""Keys in order, for the indexes of tables in memory."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from itertools import islice
from typing import Any


class SortedKeys:
    """Keys in order. A list: moves are cheap beside the work that causes them."""

    def __init__(self) -> None:
        """Start empty."""
        self._keys: list[Any] = []

    def __len__(self) -> int:
        """Return how many keys there are."""
        return len(self._keys)

    def add(self, key: Any) -> None:
        """Insert a key."""
        insort(self._keys, key)

    def remove(self, key: Any) -> None:
        """Remove a key that is there."""
        del self._keys[bisect_left(self._keys, key)]

    def above(self, key: Any) -> Iterator[Any]:
        """Yield the keys from `key` on."""
        return islice(self._keys, bisect_left(self._keys, key), None)

    def below(self, key: Any) -> Iterator[Any]:
        """Yield the keys below `key`, the highest first."""
        return (self._keys[at] for at in range(bisect_left(self._keys, key) - 1, -1, -1))

    def __iter__(self) -> Iterator[Any]:
        """Yield all keys in order."""
        return iter(self._keys)
