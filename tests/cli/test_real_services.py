"""The commands with a real agent and a real coordinator, as processes; there is no broker: work goes on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

Skerry = Any
#: No broker listens here: port 1 is reserved.
NO_BROKER = "mqtt://127.0.0.1:1"


class Services:
    """Services started with `skerry … run`, each in a process of its own."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._running: list[subprocess.Popen[bytes]] = []

    def start(self, service: str) -> subprocess.Popen[bytes]:
        """Start one and return when it answers."""
        config = str(self._home / service / f"{service}.toml")
        code = "from skerry.cli import main; main()"
        with (self._home / f"{service}.log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-c", code, service, "run", "--config", config],
                stderr=log,
                env={**os.environ, "SKERRY_AGENT__MQTT__URL": NO_BROKER},
            )
        self._running.append(process)
        self._await(self._home / service / "data" / f"{service}.sock", process)
        return process

    def _await(self, socket: Path, process: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + 30
        while not socket.is_socket():
            assert process.poll() is None, (self._home / f"{socket.stem}.log").read_text()
            assert time.monotonic() < deadline
            time.sleep(0.02)  # a real process starts: nothing here runs on a virtual clock

    def end(self) -> None:
        """Kill what still runs."""
        for process in self._running:
            process.kill()
            process.wait()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[[str], subprocess.Popen[bytes]]]:
    """Starts a service that was set up under tmp_path."""
    services = Services(tmp_path)
    yield services.start
    services.end()


def test_an_agent_runs_commands_and_stops_in_order(skerry: Skerry, start: Any, tmp_path: Path) -> None:
    skerry("agent", "init", "agent", "--name", "alpha")
    process = start("agent")
    where = ("--config", "agent/agent.toml")

    done = skerry("submit", *where, "--command", "--wait", "30", "--", "echo", "hello from the edge")
    dead = skerry("submit", *where, "--command", "--wait", "30", "--", "no-such-command-here")
    command_line = Path(f"/proc/{process.pid}/cmdline").read_bytes().split(b"\0")
    process.send_signal(signal.SIGTERM)

    assert (done.exit_code, done.stdout) == (0, "hello from the edge\n"), done.output
    assert dead.exit_code == 1
    assert "no-such-command-here" in dead.stderr
    assert command_line[1:4] == [b"-P", b"-m", b"edge_agent"]
    assert process.wait(30) == 0
    assert not (tmp_path / "agent" / "data" / "agent.sock").exists()
    assert skerry("devices", *where).exit_code == 4
    assert (
        skerry("queue", "check", *where).exit_code == 0
    )  # a stopped agent's queue is read from its directory


def test_a_second_agent_on_the_same_directory_is_refused(skerry: Skerry, start: Any, tmp_path: Path) -> None:
    skerry("agent", "init", "agent")
    process = start("agent")

    code = "from skerry.cli import main; main()"
    words = [sys.executable, "-c", code, "agent", "run", "--config", str(tmp_path / "agent" / "agent.toml")]
    second = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)

    assert second.returncode != 0
    assert f"in use by process {process.pid}" in second.stderr
    assert "Traceback" not in second.stderr


def test_a_node_enrols_with_a_token_and_is_listed(skerry: Skerry, start: Any) -> None:
    skerry("coordinator", "init", "coordinator", "--mqtt", NO_BROKER, "--listen", "127.0.0.1:0")
    skerry("agent", "init", "agent", "--name", "alpha", "--region", "north")
    start("coordinator")
    where = ("--config", "coordinator/coordinator.toml")
    issued = json.loads(skerry("coordinator", "token", *where, "--valid", "600", "--json").stdout)
    enrol = ("enrol", "--config", "agent/agent.toml", "--coordinator", issued["coordinator_url"], "--token")

    enrolled = skerry(*enrol, "-", stdin=issued["token"] + "\n")
    used = skerry(*enrol, issued["token"], "--node", "beta")

    assert (issued["valid_s"], enrolled.stdout) == (600, "enrolled as alpha in fleet fleet\n"), (
        enrolled.output
    )
    assert used.exit_code == 5
    assert "token" in used.stderr
    rows = [line.split("\t") for line in skerry("nodes", *where).stdout.splitlines()]
    assert [row[:4] for row in rows] == [
        ["node", "region", "site", "status"],
        ["alpha", "north", "", "enrolled"],
    ]
    assert json.loads(skerry("nodes", "alpha", *where, "--json").stdout)["region"] == "north"
    assert skerry("nodes", "gamma", *where).exit_code == 3
    assert skerry("nodes", "alpha", "--release", *where).exit_code == 5
    assert "may not speak" in skerry("nodes", "alpha", "--revoke", *where).stdout


def test_over_tcp_the_coordinator_asks_for_its_token(skerry: Skerry, start: Any) -> None:
    skerry("coordinator", "init", "coordinator", "--mqtt", NO_BROKER, "--listen", "127.0.0.1:0")
    start("coordinator")
    where = ("--config", "coordinator/coordinator.toml")
    url = json.loads(skerry("coordinator", "token", *where, "--json").stdout)["coordinator_url"]

    without = skerry("nodes", "--url", url)
    with_token = skerry("nodes", "--url", url, "--token-file", "coordinator/data/api-token")

    assert without.exit_code == 5
    assert "Bearer" in without.stderr
    assert (with_token.exit_code, with_token.stderr.partition(";")[0]) == (0, "no node is enrolled")
