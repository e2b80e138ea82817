"""A small fleet of real processes for benchmarks: the demo's, with two nodes. Stops all that it started."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from skerry.cli.demo.brokers import start_broker
from skerry.cli.demo.fleet import Fleet, NodePlan

#: A node with its processor alone: it hands over what needs an accelerator.
LONE = "lone"
#: A node with an emulated NPU.
BOARD = "board"
PLANS = (NodePlan(name=LONE, region="north"), NodePlan(name=BOARD, region="south", boards=("hailo-8l",)))


@contextmanager
def running_fleet(directory: Path) -> Iterator[Fleet]:
    """Yield a started fleet, its files in `directory`.  Raises SkerryError when a part does not start."""
    broker = start_broker(directory / "broker")
    try:
        with Fleet(directory, broker, PLANS, directory / "witness.txt") as fleet:
            fleet.start()
            yield fleet
    finally:
        broker.stop()
