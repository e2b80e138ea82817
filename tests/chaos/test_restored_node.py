"""A node whose queue was restored is heard in full, one whose file was copied back is not: real processes."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from skerry.cli.demo.brokers import start_broker
from skerry.cli.demo.fleet import Fleet, NodePlan
from skerry.cli.demo.process import run_skerry
from skerry.client import Client
from skerry.endpoint import Endpoint
from skerry.task import CommandSpec, TaskSpec

PATIENCE_S = 60.0
PLANS = (NodePlan(name="alpha", region="north"),)


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """One coordinator, one agent, a broker; the last test spoils it."""
    tmp_path = tmp_path_factory.mktemp("fleet")
    broker = start_broker(tmp_path / "broker")
    try:
        with Fleet(tmp_path, broker, PLANS, tmp_path / "witness.txt") as fleet:
            fleet.start()
            yield fleet
    finally:
        broker.stop()


def client_of(fleet: Fleet) -> Client:
    return Client.at(Endpoint(socket=fleet.agents["alpha"].socket_path))


def wait_for(what: str, is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < deadline, what
        time.sleep(0.1)  # other processes work meanwhile; polled with a deadline


def done(client: Client, *keys: str) -> None:
    """Run a task under each key and wait until the coordinator's application has its report."""
    for key in keys:
        client.submit(TaskSpec(spec=CommandSpec(argv=("true",))), idempotency_key=key).result(PATIENCE_S)
    wait_for("the reports are not acknowledged", lambda: not any(client.queue().outbox.values()))


def status_of(fleet: Fleet) -> str:
    config = str(fleet.data_dir("coordinator") / "coordinator.toml")
    (node,) = json.loads(run_skerry("nodes", "--json", "--config", config))["nodes"]
    return str(node["status"])


def test_a_restored_node_goes_on_and_the_coordinator_hears_all_it_says(fleet: Fleet, tmp_path: Path) -> None:
    config = str(fleet.data_dir("alpha") / "agent.toml")
    with client_of(fleet) as client:
        wait_for("no link", lambda: client.node().link.state == "up")
        done(client, "before-1", "before-2")
        run_skerry("backup", "create", str(tmp_path / "copy.zip"), "--config", config)
        done(client, "after-1", "after-2", "after-3")

    fleet.agents["alpha"].stop()
    run_skerry("backup", "restore", str(tmp_path / "copy.zip"), "--config", config, "--replace")
    fleet.agents["alpha"].start()

    with client_of(fleet) as client:
        wait_for("no link after the restore", lambda: client.node().link.state == "up")
        done(client, "after-3", "new-1", "new-2", "new-3", "new-4")
        known = client.submit(TaskSpec(spec=CommandSpec(argv=("true",))), idempotency_key="before-1")
        assert not known.is_new
        assert client.node().alarms == {}
    assert status_of(fleet) == "online"


def test_a_database_that_was_put_back_without_a_restore_is_quarantined(fleet: Fleet, tmp_path: Path) -> None:
    home, agent = fleet.data_dir("alpha"), fleet.agents["alpha"]
    with client_of(fleet) as client:
        wait_for("no link", lambda: client.node().link.state == "up")
        done(client, "early-1")
    agent.stop()
    shutil.copy(home / "queue.db", tmp_path / "queue.db")
    agent.start()
    with client_of(fleet) as client:
        wait_for("no link", lambda: client.node().link.state == "up")
        done(client, "late-1", "late-2", "late-3")

    agent.stop()
    shutil.copy(tmp_path / "queue.db", home / "queue.db")
    agent.start()

    wait_for("the older copy is not noticed", lambda: status_of(fleet) == "quarantined")
