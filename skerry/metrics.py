"""Figures for a monitor: one registry a process, never the library's global one.

Owns the wrapping of prometheus-client; knows nothing of what is measured.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
#: Latency of a local request runs from tens of microseconds to a synced write on a slow card, seconds.
LATENCY_BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0)


class Metrics:
    """The figures of one process; every name gets `prefix_` in front."""

    def __init__(self, prefix: str) -> None:
        """Start with the process's own figures (memory, CPU, open files)."""
        self.registry = CollectorRegistry()
        self._prefix = prefix
        ProcessCollector(registry=self.registry)

    def counter(self, name: str, what: str, labels: Sequence[str] = ()) -> Counter:
        """Return a counter; its shown name ends in `_total`."""
        return Counter(f"{self._prefix}_{name}", what, labels, registry=self.registry)

    def histogram(
        self, name: str, what: str, labels: Sequence[str] = (), buckets_s: Sequence[float] = LATENCY_BUCKETS_S
    ) -> Histogram:
        """Return a histogram of durations in seconds."""
        return Histogram(f"{self._prefix}_{name}", what, labels, registry=self.registry, buckets=buckets_s)

    def read_on_demand(
        self, name: str, what: str, label: str, read: Callable[[], Mapping[str, float]]
    ) -> None:
        """Show the values that `read` returns at the moment someone asks, one a label value."""
        self.registry.register(_OnDemand(f"{self._prefix}_{name}", what, label, read))

    def render(self) -> bytes:
        """Return everything in the text form that Prometheus reads."""
        return generate_latest(self.registry)


class _OnDemand(Collector):
    """Values read when asked for, so that nothing has to be kept in step with a second counter."""

    def __init__(self, name: str, what: str, label: str, read: Callable[[], Mapping[str, float]]) -> None:
        self._name, self._what, self._label, self._read = name, what, label, read

    def describe(self) -> Iterable[Metric]:
        """Name the figure without reading it (registration must not call into a part that is not up yet)."""
        return [GaugeMetricFamily(self._name, self._what, labels=[self._label])]

    def collect(self) -> Iterable[Metric]:
        """Read the values now."""
        family = GaugeMetricFamily(self._name, self._what, labels=[self._label])
        for value, reading in self._read().items():
            family.add_metric([value], reading)
        return [family]
