"""A small fleet of real processes for benchmarks: the demo's, with two nodes. Stops all that it started."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.harness import BenchmarkError
from skerry.cli.demo.brokers import start_broker
from skerry.cli.demo.fleet import Fleet, NodePlan
from skerry.errors import SkerryError

#: A node with its processor alone: it hands over what needs an accelerator.
LONE = "lone"
#: A node with an emulated NPU.
BOARD = "board"
PLANS = (NodePlan(name=LONE, region="north"), NodePlan(name=BOARD, region="south", boards=("hailo-8l",)))


@contextmanager
def running_fleet(directory: Path) -> Iterator[Fleet]:
    """Yield a started fleet, its files in `directory`.  Raises BenchmarkError when a part does not start."""
    broker = start_broker(directory / "broker")
    try:
        with Fleet(directory, broker, PLANS, directory / "witness.txt") as fleet:
            _start(fleet)
            yield fleet
    finally:
        broker.stop()


def _start(fleet: Fleet) -> None:
    try:
        fleet.start()
    except SkerryError as error:
        raise BenchmarkError(str(error)) from error
