"""The benchmarks by name. Each is imported when it runs, so that one that cannot run stops no other."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

from benchmarks.harness import Benchmark

#: name → (module, one sentence)
BENCHMARKS: dict[str, tuple[str, str]] = {
    "spine": (
        "benchmarks.spine",
        "submit to done, placement round trip, memory, start-up, durable submits per second",
    ),
    "policy": (
        "benchmarks.policy",
        "every scheduler on the same episodes at three sizes, distance to the exact optimum",
    ),
    "federation": (
        "benchmarks.federation",
        "a federated round with 2, 10 and 100 null clients, beside Flower's simulation",
    ),
    "queue-sizing": (
        "benchmarks.queue_sizing",
        "what a task takes of the disk, and what is written for it over its life, by payload",
    ),
    "queue": (
        "benchmarks.queue.benchmark",
        "the durable queue beside its peers: rates, processor time and bytes at up to 2,600,000 rows",
    ),
}


def loader(name: str) -> Callable[[], Benchmark]:
    """Return what imports the benchmark and returns its `measure`.  Raises KeyError for an unknown name."""
    module, _ = BENCHMARKS[name]

    def load() -> Benchmark:
        measure: Benchmark = import_module(module).measure
        return measure

    return load
