"""A small fleet of real processes for benchmarks: the demo's, with two nodes. Stops all that it started."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from skerry.cli.demo.brokers import start_broker
from skerry.cli.demo.fleet import Fleet, NodePlan
from skerry.identity import PrivateKey

#: A node with its processor alone: it hands over what needs an accelerator.
LONE = "lone"
#: A node with an emulated NPU.
BOARD = "board"
PLANS = (NodePlan(name=LONE, region="north"), NodePlan(name=BOARD, region="south", boards=("hailo-8l",)))
#: How well a policy does is not measured here: it is judged on as little as can be.
_JUDGED = {"policies.devices": "8", "policies.scenarios": 4}


@contextmanager
def running_fleet(directory: Path) -> Iterator[Fleet]:
    """Yield a started fleet, its files in `directory`.  Raises SkerryError when a part does not start."""
    signer = PrivateKey.load_or_create(signing_key(directory)).public_hex
    broker = start_broker(directory / "broker")
    try:
        with Fleet(
            directory,
            broker,
            PLANS,
            directory / "witness.txt",
            coordinator={**_JUDGED, "policies.signers": [signer]},
        ) as fleet:
            fleet.start()
            yield fleet
    finally:
        broker.stop()


def signing_key(directory: Path) -> Path:
    """Return the key file of the operator whose policies the fleet's coordinator takes."""
    return directory / "operator.key"
