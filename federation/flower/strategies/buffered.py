"""Buffered asynchronous averaging: a version closes as soon as the buffer is full; the slow go on working.

Source: Nguyen et al. 2022 (FedBuff, arXiv 2106.06639). Different from it: the staleness weight is the
polynomial one of Xie et al. 2019, and a node works on one instruction at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from federation.flower.strategies.mean import WeightedMean


class Buffered(WeightedMean):
    """For fleets with slow or rarely reachable nodes."""

    def choose(self, nodes: Sequence[int], busy: Iterable[int]) -> list[int]:
        """Return those who are not at work, at most as many as the run allows."""
        at_work = frozenset(busy)
        return sorted(node for node in nodes if node not in at_work)[: self.spec.cohort.limit]

    def wanted(self) -> int | None:
        """Return the size of the buffer."""
        return self.spec.buffer
