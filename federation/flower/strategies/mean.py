# pyright: reportMissingImports=false, reportUntypedBaseClass=false
"""The weighted mean of replies, the same to the last bit in whatever order they come.

Replies are added in the order of their content's digest, in double precision: neither arrival, nor node ids,
nor what carries the messages can change a bit.
"""

from __future__ import annotations

import hashlib
import math
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy

from federation.flower.records import (
    ARRAYS,
    METRICS,
    NUM_EXAMPLES,
    from_record,
    instruction_content,
    to_record,
)
from federation.values import RunSpec, Scalar
from federation.wire import Arrays


class WeightedMean(Strategy):
    """What the strategies share: whom to ask is theirs, how to merge is here."""

    def __init__(self, spec: RunSpec) -> None:
        """Merge as the run says: `server_rate` is the share of the mean update that is applied."""
        self.spec = spec
        self._current: Arrays = {}

    @abstractmethod
    def choose(self, nodes: Sequence[int], busy: Iterable[int]) -> list[int]:
        """Return whom to ask now.  busy: nodes with an instruction that is not too old to be used."""

    @abstractmethod
    def wanted(self) -> int | None:
        """Return how many usable replies end the wait before the deadline; None: all of this version's."""

    def begin(self, arrays: Arrays) -> None:
        """Say what the newest version is."""
        self._current = arrays

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> list[Message]:
        """Return the instructions to the chosen nodes; the parameters are shared between them."""
        self.begin(from_record(arrays))
        chosen = self.choose(sorted(grid.get_node_ids()), ())
        return self.instructions(chosen, arrays, dict(config))

    def instructions(
        self, nodes: Iterable[int], arrays: ArrayRecord, config: Mapping[str, Scalar]
    ) -> list[Message]:
        """Return one instruction a node."""
        return [
            Message(instruction_content(arrays, config), node, "train", ttl=self.spec.ttl_s) for node in nodes
        ]

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Return the mean of the replies, weighted by their examples, and of their metrics."""
        ordered = sorted(
            ((_digest(reply), _weight(reply)), index, reply) for index, reply in enumerate(replies)
        )
        if not ordered:
            return None, None
        weights = [weight for (_, weight), _, _ in ordered]
        found = [from_record(reply.content[ARRAYS]) for _, _, reply in ordered]
        merged = merge(self._current, found, weights, rate=self.spec.server_rate)
        metrics = [dict(reply.content[METRICS]) for _, _, reply in ordered]
        return to_record(merged), MetricRecord(mean_metrics(metrics, weights))

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> list[Message]:
        """Ask nobody: versions are evaluated by the engine before a rollout, not by the nodes."""
        return []

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """Return nothing: nobody was asked."""
        return None

    def summary(self) -> None:
        """Say nothing: the ledger holds what the run is."""


def merge(current: Arrays, found: Sequence[Arrays], weights: Sequence[float], *, rate: float = 1.0) -> Arrays:
    """Return current + rate · (weighted mean − current), summed in double precision in the given order."""
    total = math.fsum(weights)
    merged: Arrays = {}
    for key, now in current.items():
        mean = np.zeros(now.shape, np.float64)
        for arrays, weight in zip(found, weights, strict=True):
            mean += (weight / total) * arrays[key].astype(np.float64)
        if rate != 1.0:
            mean = now.astype(np.float64) + rate * (mean - now.astype(np.float64))
        merged[key] = mean.astype(now.dtype)
    return merged


def mean_metrics(metrics: Sequence[Mapping[str, object]], weights: Sequence[float]) -> dict[str, float]:
    """Return the weighted mean of each metric over those who report it; exactly rounded sums."""
    names = sorted({name for one in metrics for name in one} - {NUM_EXAMPLES})
    means: dict[str, float] = {}
    for name in names:
        pairs = [(float(str(one[name])), w) for one, w in zip(metrics, weights, strict=True) if name in one]
        means[name] = math.fsum(value * w for value, w in pairs) / math.fsum(w for _, w in pairs)
    return means


def _digest(reply: Message) -> bytes:
    hashed = hashlib.sha256()
    for key, array in sorted(reply.content[ARRAYS].items()):
        hashed.update(key.encode())
        hashed.update(array.data)
    return hashed.digest()


def _weight(reply: Message) -> float:
    return float(reply.content[METRICS][NUM_EXAMPLES])
