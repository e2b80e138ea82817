"""The spine's figures: what a task costs beyond its own work, what an agent weighs, how fast work is safe.

A real broker, coordinator and two agents run for it, in a temporary directory, on loopback.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.fleet import running_fleet
from benchmarks.harness import Result, Run
from benchmarks.spine import durability, footprint, latency, learned, placement, start


def measure(run: Run) -> Iterator[Result]:
    """Measure an idle fleet first, a working one, starts, one with a policy, then the store alone."""
    if run.trace is not None:
        run.say("spine replays no recorded workload: --trace is not used")
    with tempfile.TemporaryDirectory(prefix="skerry-bench-") as directory:
        with running_fleet(Path(directory)) as fleet:
            run.say(f"fleet of {len(fleet.agents)} agents, broker {fleet.broker.kind}")
            yield from footprint.idle(run, fleet)
            yield from latency.command(run, fleet)
            yield from latency.inference(run, fleet)
            yield from footprint.loaded(run, fleet)
            yield from placement.measure(run, fleet)
            yield from start.measure(run, fleet)
            yield from learned.measure(run, fleet)
        yield from durability.measure(run, Path(directory))
