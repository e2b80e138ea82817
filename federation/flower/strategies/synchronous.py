"""Synchronous averaging: everybody eligible is asked for every version, which closes when all have answered.

Source: McMahan et al. 2017 (FedAvg). Different from it: a deadline with a quorum, and replies that come late
are used in the next version with less weight.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

from federation.flower.strategies.mean import WeightedMean


class Synchronous(WeightedMean):
    """For small groups that are mostly reachable."""

    def choose(self, nodes: Sequence[int], busy: Iterable[int]) -> list[int]:
        """Return all of them, or as many as the run allows, in an order drawn from its seed."""
        limit = self.spec.cohort.limit
        if len(nodes) <= limit:
            return sorted(nodes)
        return sorted(sorted(nodes, key=self._draw)[:limit])

    def wanted(self) -> int | None:
        """Return None: all of them."""
        return None

    def _draw(self, node: int) -> bytes:
        return hashlib.sha256(f"{self.spec.seed}\n{node}".encode()).digest()
