"""An agent as a real process: what it loads, how much memory it takes, how it starts, stops and dies."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import psutil
import pytest

from skerry.client import Client
from skerry.endpoint import Endpoint
from skerry.identity import Enrolment, PrivateKey
from skerry.task import CommandSpec, Resources, TaskSpec

PATIENCE_S = 60.0
#: What an agent never loads: learning, numbers, and what belongs to children or to the command line.
FOREIGN = {
    *("torch", "flwr", "scipy", "pydantic", "numpy", "onnxruntime", "typer", "rich", "click", "pandas"),
    *("cloud_coordinator", "twin", "federation"),
    *("sqlite3", "sqlitedict", "psutil", "multiprocessing", "unittest", "jsonschema"),
}
IDLE_LIMIT_BYTES = 70_000_000

PROBE = """
import asyncio, json, os, sys
from edge_agent.service import run_service
from edge_agent.settings import AgentSettings, TrainingSettings

def ready(server):
    loop = asyncio.get_running_loop()
    until = loop.time() + 30.0
    def look():
        rss = int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        if rss > int(sys.argv[3]) and loop.time() < until:
            loop.call_later(0.1, look)  # what the start left behind is given back in its own time
            return
        print(json.dumps({"modules": sorted(sys.modules), "rss": rss}))
        os.kill(os.getpid(), 15)
    loop.call_later(1.0, look)  # link and chores have begun by then

training = TrainingSettings(enabled=sys.argv[2] == "True", python=sys.executable)
asyncio.run(run_service(AgentSettings(data_dir=sys.argv[1], training=training), on_ready=ready))
"""


class Probe(msgspec.Struct, frozen=True):
    """What the probe process said of itself."""

    modules: list[str]
    rss: int


def start_probe(data_dir: Path, *, trains: bool) -> Probe:
    done = subprocess.run(
        [sys.executable, "-P", "-c", PROBE, str(data_dir), str(trains), str(IDLE_LIMIT_BYTES)],
        capture_output=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    return msgspec.json.decode(done.stdout, type=Probe)


def enrol_somewhere(data_dir: Path) -> None:
    PrivateKey.load_or_create(data_dir / "identity" / "node.key")
    Enrolment(
        fleet="fleet",
        node="edge-1",
        region="north",
        coordinator_url="http://127.0.0.1:9",
        coordinator_public_key=PrivateKey.generate().public_hex,
        broker_url="mqtt://127.0.0.1:9",  # the discard port: nothing listens
    ).save(data_dir / "identity" / "enrolment.json")


@pytest.mark.parametrize(("is_enrolled", "trains"), [(False, False), (True, False), (True, True)])
def test_an_idle_agent_is_small_and_loads_nothing_foreign(
    tmp_path: Path, is_enrolled: bool, trains: bool
) -> None:
    if is_enrolled:
        enrol_somewhere(tmp_path / "data")

    probe = start_probe(tmp_path / "data", trains=trains)

    loaded = {name.split(".")[0] for name in probe.modules}
    assert loaded & FOREIGN == ({"federation"} if trains else set())
    assert "regorus" in loaded  # the rules are loaded, not left out
    assert ("paho" in loaded) == is_enrolled
    assert ("edge_agent.training_service" in probe.modules) == trains
    assert probe.rss <= IDLE_LIMIT_BYTES


class Running:
    """An agent process with a client."""

    def __init__(self, process: subprocess.Popen[bytes], client: Client) -> None:
        self.process, self.client = process, client


StartAgent = Callable[..., Running]


@pytest.fixture
def start_agent(tmp_path: Path) -> Iterator[StartAgent]:
    """Starts agent processes on one data directory; what is left of them is ended by id."""
    processes: list[subprocess.Popen[bytes]] = []
    clients: list[Client] = []

    def start(*, environ: dict[str, str] | None = None) -> Running:
        file = tmp_path / "agent.toml"
        file.write_text(
            f"data_dir = '{tmp_path / 'data'}'\n[node]\nname = 'edge-1'\n[limits]\nstop_grace_s = 0.2\n"
            "[devices.children]\nkill_grace_s = 0.2\n[rules]\nenabled = false\n"
        )
        command_line = [sys.executable, "-P", "-m", "edge_agent", "--config", str(file)]
        process = subprocess.Popen(command_line, env={**os.environ, **(environ or {})})
        processes.append(process)
        path = tmp_path / "data" / "agent.sock"
        deadline = time.monotonic() + PATIENCE_S
        while not answers(path):
            assert process.poll() is None, "the agent has ended"
            assert time.monotonic() < deadline
            time.sleep(0.02)  # the process starts in its own time; polled with a deadline
        clients.append(Client.at(Endpoint(socket=path)))
        return Running(process, clients[-1])

    yield start
    for client in clients:
        client.close()
    for process in processes:
        process.kill()
        process.wait()


def answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        return probe.connect_ex(str(path)) == 0


def sleeper() -> TaskSpec:
    resources = Resources(cpu_millicores=100, memory_bytes=1 << 26)
    return TaskSpec(spec=CommandSpec(argv=("sleep", "600")), resources=resources, retries=5)


def started_child(agent: Running, task_id: str) -> psutil.Process:
    deadline = time.monotonic() + PATIENCE_S
    while True:
        for child in psutil.Process(agent.process.pid).children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):  # one that ended between the two looks
                if child.name() == "sleep":
                    return child
        assert time.monotonic() < deadline
        time.sleep(0.02)  # the executor's child starts in its own time; polled with a deadline


def is_gone(process: psutil.Process) -> bool:
    deadline = time.monotonic() + PATIENCE_S
    with contextlib.suppress(psutil.NoSuchProcess):  # it went between the two looks
        while process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
            if time.monotonic() > deadline:
                return False
            time.sleep(0.02)  # the kernel ends it in its own time; polled with a deadline
    return True


def test_sigterm_ends_the_agent_in_order_and_its_children_with_it(start_agent: StartAgent) -> None:
    agent = start_agent()
    task_id = agent.client.submit(sleeper()).task_id
    child = started_child(agent, task_id)

    agent.process.send_signal(signal.SIGTERM)

    assert agent.process.wait(PATIENCE_S) == 0
    assert is_gone(child)


def test_a_killed_agent_leaves_no_child_and_its_task_runs_again(start_agent: StartAgent) -> None:
    agent = start_agent()
    task_id = agent.client.submit(sleeper()).task_id
    child = started_child(agent, task_id)

    agent.process.kill()
    agent.process.wait()
    assert is_gone(child)
    again = start_agent()
    started_child(again, task_id)

    assert [attempt.ended for attempt in again.client.get(task_id).attempts] == ["interrupted", ""]


def test_the_service_manager_hears_when_it_is_ready_alive_and_stopping(
    start_agent: StartAgent, tmp_path: Path
) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(PATIENCE_S)
        agent = start_agent(environ={"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "200000"})
        said = [manager.recv(4096).decode() for _ in range(3)]
        agent.process.send_signal(signal.SIGTERM)
        while "STOPPING=1" not in said:
            said.append(manager.recv(4096).decode())

    assert any(text.startswith("READY=1") for text in said)
    assert said.count("WATCHDOG=1") >= 2
    assert agent.process.wait(PATIENCE_S) == 0
