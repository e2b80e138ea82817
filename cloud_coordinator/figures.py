"""The coordinator's figures for a monitor. Owns their names; reads what the ledger counts when asked."""

from __future__ import annotations

from collections import deque

from skerry.metrics import Metrics

#: Placement runs from below a millisecond to the wait for a free place, seconds.
PLACEMENT_BUCKETS_S = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0, 300.0, 3600.0)
KEPT = 10_000


class Figures:
    """Counters and histograms of one coordinator."""

    def __init__(self) -> None:
        """Register every figure under `skerry_coordinator_`."""
        self.metrics = Metrics("skerry_coordinator")
        self._refused = self.metrics.counter("refused", "Messages refused at the door", ("reason",))
        self._placed = self.metrics.histogram(
            "placement_seconds", "From the offer's commit to the placement's", buckets_s=PLACEMENT_BUCKETS_S
        )
        self._recent: deque[float] = deque(maxlen=KEPT)
        #: The newest counts of the ledger, by figure and label: refreshed at each tick.
        self.tasks: dict[str, float] = {}
        self.nodes: dict[str, float] = {}
        self.ledger: dict[str, float] = {}
        self.metrics.read_on_demand("tasks", "Tasks in the ledger", "state", lambda: self.tasks)
        self.metrics.read_on_demand("nodes", "Nodes in the register", "status", lambda: self.nodes)
        self.metrics.read_on_demand("ledger", "What the ledger counts", "counter", lambda: self.ledger)

    def refused(self, reason: str) -> None:
        """Count one refusal."""
        self._refused.labels(reason).inc()

    def placed(self, waited_s: float) -> None:
        """Measure one first placement."""
        self._placed.observe(waited_s)
        self._recent.append(waited_s)

    def placement_ms(self) -> dict[str, float]:
        """Return p50 and p99 over the last placements, milliseconds; empty before the first."""
        ordered = sorted(self._recent)
        if not ordered:
            return {}
        last = len(ordered) - 1
        return {name: ordered[round(last * q)] * 1000 for name, q in (("p50", 0.5), ("p99", 0.99))}
