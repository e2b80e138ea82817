"""Federated rounds over real processes: coordinator, agents, broker, workers and training children."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

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
from skerry.cli.coordinator import connection
from skerry.cli.demo.fleet import Fleet
from skerry.client import Client
from skerry.policy_documents import PolicyVersionView
from skerry.round_documents import RoundView
from tests.train.fleet import PATIENCE_S, Rounds, plan, running

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(300)]

#: A node that is busy trains after this: long enough to be cut off, or killed, in between.
BUSY_S = 5.0
#: The same, and twice of it, a restart between, fits into a deadline.
SOON_S = 2.0


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
    soon = plan("a", start_below_load=1e-6, patience_s=SOON_S)
    late = plan("b", is_cuttable=True, start_below_load=1e-6, patience_s=BUSY_S)
    with running(tmp_path, soon, late) as fleet:
        rounds = Rounds(fleet)
        for name in ("a", "b"):
            keep_busy(fleet, name)
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


def test_what_nodes_recorded_becomes_a_policy_that_the_registry_judges(tmp_path: Path) -> None:
    judge_quickly = {"policies.scenarios": 4, "policies.devices": "8", "federation.scenarios": 4}
    with running(tmp_path, plan("a"), plan("b"), coordinator=judge_quickly) as fleet:
        for name in ("a", "b"):
            work(fleet, name, tasks=40)
        view = Rounds(fleet)(
            *("start", "--name", "r1", "--rounds", "1", "--watch"),
            *("--set", "ppo.updates=1", "--set", "ppo.tasks=20", "--set", "ppo.copies=2"),
        )
        judged = judgement(fleet, view.policy.policy)
        following = Rounds(fleet)(
            *("start", "--name", "r2", "--rounds", "1", "--watch", "--base", judged.version),
            *("--set", "ppo.updates=1", "--set", "ppo.tasks=20", "--set", "ppo.copies=2"),
        )

    assert (view.state, view.policy.state) == ("done", "offered"), view
    assert {one.node: one.state for one in view.participants} == {"a": "accepted", "b": "accepted"}
    assert all(one.metrics["arrivals"] == 40 for one in view.participants)
    lineage = judged.manifest.lineage
    assert (lineage.run_id, lineage.round, lineage.contributors) == ("r1", 1, 2)
    assert judged.manifest.evaluation.comparisons
    assert judged.added_by == "run r1"
    assert (following.state, following.base_policy) == ("done", judged.policy), following
    assert following.versions[0].model, "it began with the policy's parameters"


def work(fleet: Fleet, name: str, *, tasks: int) -> None:
    """Have a node do small tasks, and return when they are done and recorded."""
    task = {
        "spec": {"executor": "command", "argv": ["true"]},
        "resources": {"accelerator": "none", "cpu_millicores": 100, "memory_bytes": 1 << 26},
    }
    with Client(socket=fleet.data_dir(name) / "agent.sock") as client:
        for handle in [client.submit({**task, "kind": f"k{n % 3}"}) for n in range(tasks)]:
            handle.result(PATIENCE_S)


def judgement(fleet: Fleet, policy: str) -> PolicyVersionView:
    """Return the registry's word on a policy, once it has one."""
    deadline = time.monotonic() + PATIENCE_S
    with connection(fleet.data_dir("coordinator") / "coordinator.toml", None) as http:
        while (found := http.json(PolicyVersionView, "GET", f"/v1/policies/{policy}")).state == "vetting":
            assert time.monotonic() < deadline
            time.sleep(0.1)  # polling another process
    return found


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
