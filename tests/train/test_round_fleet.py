"""Federated rounds over real processes: coordinator, agents, broker, workers and training children."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest

from federation.flower import internals
from federation.flower.client_app import app as client_app
from federation.flower.journal import MemoryJournal
from federation.flower.server_app import app as server_app
from federation.flower.settings import to_run_config
from federation.grid.local import LocalGrid, numbered
from federation.values import RunSpec
from federation.wire import content_hash, pack
from skerry.cli.demo.brokers import start_broker
from skerry.cli.demo.fleet import Fleet, NodePlan
from skerry.client import Client
from skerry.round_documents import RoundView

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(300)]

PATIENCE_S = 120.0
WITHOUT_RULES = {"rules.enabled": False}
QUICK_TO_STOP = {"limits.stop_grace_s": 1.0}
#: A node that is busy trains after this: long enough to be cut off, or killed, in between.
BUSY_S = 5.0


def plan(name: str, *, is_cuttable: bool = False, **training: Any) -> NodePlan:
    """An agent that takes part, and begins to train at once."""
    settings = {f"training.{key}": value for key, value in {"enabled": True, **training}.items()}
    return NodePlan(
        name=name,
        region="north",
        is_cuttable=is_cuttable,
        settings={**WITHOUT_RULES, **QUICK_TO_STOP, **settings},
    )


@contextmanager
def running(directory: Path, *plans: NodePlan) -> Iterator[Fleet]:
    """A started fleet."""
    broker = start_broker(directory / "broker")
    try:
        with Fleet(directory, broker, plans, directory / "witness", coordinator=WITHOUT_RULES) as fleet:
            fleet.start()
            yield fleet
    finally:
        broker.stop()


class Rounds:
    """`skerry round` against one fleet."""

    def __init__(self, fleet: Fleet) -> None:
        self._config = fleet.directory / "coordinator" / "coordinator.toml"

    def __call__(self, *words: str) -> RoundView:
        """Run one command; return the run it shows."""
        done = subprocess.run(
            [sys.executable, "-m", "skerry.cli", "round", *words, "--config", str(self._config), "--json"],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        shown = done.stdout.strip().splitlines()[-1] if "--watch" in words else done.stdout
        return msgspec.json.decode(shown, type=RoundView)

    def until(self, name: str, is_so: Callable[[RoundView], bool]) -> RoundView:
        """Poll with a deadline: what is waited for happens in other processes."""
        deadline = time.monotonic() + PATIENCE_S
        view = self("show", name)
        while not is_so(view):
            assert time.monotonic() < deadline, json.dumps(msgspec.to_builtins(view), indent=1)
            time.sleep(0.1)
            view = self("show", name)
        return view


def is_open(node: str, version: int) -> Callable[[RoundView], bool]:
    """Decide whether a node has an instruction that it has not answered."""
    return lambda view: any(
        (one.node, one.version, one.state) == (node, version, "open") for one in view.participants
    )


def training_child(agent_pid: int) -> psutil.Process | None:
    """Return the agent's training process, None while there is none."""
    with contextlib.suppress(psutil.NoSuchProcess):
        for child in psutil.Process(agent_pid).children():
            with contextlib.suppress(psutil.NoSuchProcess):
                if "federation.edge_child" in child.cmdline():
                    return child
    return None


def keep_busy(fleet: Fleet, name: str) -> None:
    """Have a node run something for as long as the test does."""
    with Client(socket=fleet.data_dir(name) / "agent.sock") as client:
        client.submit(
            {
                "spec": {"executor": "command", "argv": ["sleep", "600"]},
                "max_runtime_s": 600.0,
                "resources": {"accelerator": "none", "cpu_millicores": 100, "memory_bytes": 1 << 26},
            }
        )


def made_locally(spec: RunSpec, nodes: dict[str, dict[str, Any]]) -> tuple[str, dict[str, float]]:
    """The hash and the metrics of the last version on the in-process grid."""
    journal = MemoryJournal(spec)
    grid = LocalGrid(client_app, nodes, journal=journal)
    server_app(grid, internals.context(1, {}, to_run_config(spec)))
    at = journal.load()
    return content_hash(pack(at.arrays)), at.metrics


def test_a_fixed_cohort_makes_the_same_bits_over_mqtt_as_on_the_local_grid(tmp_path: Path) -> None:
    named = numbered(["a", "b"])
    plans = [
        plan(name, **{f"node_config.{key}": value for key, value in config.items()})
        for name, config in named.items()
    ]
    with running(tmp_path, *plans) as fleet:
        rounds = Rounds(fleet)
        for trainer in ("null", "toy"):
            view = rounds("start", "--name", trainer, "--trainer", trainer, "--seed", "7", "--watch")

            expected = made_locally(RunSpec(run_id=trainer, trainer=trainer, seed=7), named)  # type: ignore[arg-type]
            assert view.state == "done"
            assert (view.versions[-1].model, view.versions[-1].metrics) == expected
            assert [one.state for one in view.participants] == ["accepted"] * 6


def test_three_rounds_through_an_outage_and_two_kills(tmp_path: Path) -> None:
    late = plan("b", is_cuttable=True, start_below_load=1e-6, patience_s=BUSY_S)
    with running(tmp_path, plan("a"), late) as fleet:
        rounds = Rounds(fleet)
        keep_busy(fleet, "b")
        rounds("start", "--name", "r1", "--trainer", "null", "--quorum", "1", "--deadline", "15")

        # First: the coordinator is killed while b's answer is outstanding.
        rounds.until("r1", is_open("b", 0))
        fleet.coordinator.kill()
        fleet.coordinator.start()

        # Second: b is cut off with its instruction, trains, and its answer waits.
        rounds.until("r1", is_open("b", 1))
        fleet.cut("b")
        rounds.until("r1", lambda view: view.version == 2)

        # Third: b is back with its late answer; a is killed while it trains.
        fleet.heal("b")
        _kill_while_training(fleet, "a")
        view = rounds.until("r1", lambda view: view.has_ended)

    assert view.state == "done", view.reason
    said = {(one.node, one.version): one for one in view.participants}
    assert said["b", 0].counted_in == 1
    assert (said["b", 1].state, said["b", 1].counted_in, said["b", 1].is_late) == ("accepted", 3, True)
    assert said["b", 1].staleness == 1
    assert [said["a", version].counted_in for version in range(3)] == [1, 2, 3]
    counted = [one.counted_in for one in view.participants if one.counted_in is not None]
    assert [one.accepted for one in view.versions[1:]] == [counted.count(n) for n in (1, 2, 3)]


def _kill_while_training(fleet: Fleet, name: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while (child := training_child(fleet.agents[name].pid)) is None:
        assert time.monotonic() < deadline
        time.sleep(0.01)  # polling another process
    fleet.agents[name].kill()
    with contextlib.suppress(psutil.NoSuchProcess):
        child.wait(10.0)
    assert not child.is_running()
    fleet.agents[name].start()


def test_agent_and_coordinator_import_neither_flower_nor_torch(tmp_path: Path) -> None:
    with running(tmp_path, plan("a")) as fleet:
        rounds = Rounds(fleet)
        view = rounds("start", "--trainer", "null", "--rounds", "1", "--quorum", "1", "--watch")
        maps = {
            name: Path(f"/proc/{pid}/maps").read_text()
            for name, pid in (("coordinator", fleet.coordinator.pid), ("agent", fleet.agents["a"].pid))
        }

    assert view.state == "done"
    for name, loaded in maps.items():
        assert "/torch/" not in loaded, name
        assert "/grpc/" not in loaded, name  # Flower cannot be imported without it
