"""When a load's tasks arrive at a node, and what each of them is: one stream of draws for both twins."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import NamedTuple

from twin.scenario.language import Load


class Arrival(NamedTuple):
    """One task to be submitted. at_s: seconds of the world.  is_bad: each of its attempts may fail."""

    at_s: float
    takes_s: float
    is_bad: bool


def stream_name(number: int, node: str) -> str:
    """Return what the stream of draws of a scenario's load at a node is called."""
    return f"load {number} {node}"


def arrivals(load: Load, rng: Random, *, begin_s: float, end_s: float) -> Iterator[Arrival]:
    """Yield the tasks of one load at one node, in their order.  begin_s, end_s: seconds of the world."""
    gap_s = 1.0 / load.rate_per_s
    at_s = begin_s + rng.uniform(0.0, gap_s)
    while at_s < end_s:
        takes_s = rng.uniform(*load.runtime_s)
        yield Arrival(at_s, takes_s, rng.random() < load.fails)
        at_s += gap_s if load.arrival == "steady" else rng.expovariate(1.0 / gap_s)
