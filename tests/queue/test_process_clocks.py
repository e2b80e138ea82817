"""A real agent whose clocks are moved: nothing expires early, nothing that runs is given up.

The wall clock by libfaketime, also under a process that runs; suspend by stopping the process, and by a time
namespace whose boot clock is hours ahead.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from skerry.client import Client
from tests.chaos.agent_process import AgentProcess, command

LIBRARY = next(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"), None)
HOUR_S = 3600.0
needs_faketime = pytest.mark.skipif(LIBRARY is None, reason="libfaketime is not installed (Debian: faketime)")


def can_move_boot_clock() -> bool:
    probe = ["unshare", "--time", "--boottime", "5", "--", "true"]
    return shutil.which("unshare") is not None and not subprocess.run(probe, capture_output=True).returncode


needs_time_namespace = pytest.mark.skipif(
    not can_move_boot_clock(), reason="a time namespace needs root and a kernel that has them"
)


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[AgentProcess]:
    before = shared_memory()
    agent = AgentProcess(tmp_path)
    yield agent
    agent.kill()
    for path in shared_memory() - before:
        path.unlink(missing_ok=True)


def shared_memory() -> set[Path]:
    """Return what libfaketime shares between processes; those that are killed leave it behind."""
    return set(Path("/dev/shm").glob("*faketime_*"))


class Wall:
    """The wall clock of processes that are started with its environment."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "wall"
        self.set("+0")
        self.environ = {
            "LD_PRELOAD": str(LIBRARY),
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "FAKE_SLEEP": "0",
        }

    def set(self, words: str) -> None:
        beside = self._file.with_suffix(".new")
        beside.write_text(words)
        beside.rename(self._file)


class Waiting:
    """Tasks whose time must not come while a test runs."""

    def __init__(self, client: Client) -> None:
        self.runs = client.submit(command("sleep", "600", max_runtime_s=900.0)).task_id
        self.is_due_later = client.submit(command("true", delay_s=HOUR_S)).task_id
        self.expires_later = client.submit(
            command("true", delay_s=2 * HOUR_S, expires_after_s=2.5 * HOUR_S)
        ).task_id
        wait_until(client, self.runs, "running")

    def assert_undisturbed(self, client: Client) -> None:
        running = client.get(self.runs)
        assert (running.state, len(running.attempts)) == ("running", 1)
        assert client.get(self.is_due_later).state == "delayed"
        assert client.get(self.expires_later).state == "delayed"


def wait_until(client: Client, task_id: str, state: str) -> None:
    deadline = time.monotonic() + 60
    while client.get(task_id).state != state:
        assert time.monotonic() < deadline, client.get(task_id)
        time.sleep(0.02)  # another process works; polled with a deadline


@needs_faketime
@pytest.mark.chaos
def test_steps_of_the_wall_clock_under_a_running_agent_change_nothing(
    agent: AgentProcess, tmp_path: Path
) -> None:
    wall = Wall(tmp_path)
    client = agent.start(environ=wall.environ)
    waiting = Waiting(client)

    for step in ("+1h", "-1h", "+20y", "-2y", "@1970-01-01 00:00:05", "+0"):
        wall.set(step)
        ended = client.wait(client.submit(command("true")).task_id, 60)

        assert ended.state == "done", step
        waiting.assert_undisturbed(client)


@needs_faketime
@pytest.mark.chaos
def test_an_agent_that_starts_in_1970_works_and_keeps_its_tasks_when_the_time_is_set(
    agent: AgentProcess, tmp_path: Path
) -> None:
    wall = Wall(tmp_path)
    wall.set("@1970-01-01 00:00:05")
    client = agent.start(environ=wall.environ)
    early = client.wait(client.submit(command("true")).task_id, 60)
    waiting = Waiting(client)

    wall.set("+0")
    late = client.wait(client.submit(command("true")).task_id, 60)
    waiting.assert_undisturbed(client)
    agent.kill()
    wall.set("+20y")
    client = agent.start(environ=wall.environ)
    later = client.wait(client.submit(command("true")).task_id, 60)

    assert (early.state, late.state, later.state) == ("done", "done", "done")
    assert client.get(waiting.is_due_later).state == "delayed"
    assert client.get(waiting.expires_later).state == "delayed"
    wait_until(client, waiting.runs, "running")  # interrupted, and tried again


@pytest.mark.chaos
def test_an_agent_that_was_stopped_goes_on_where_it_was(agent: AgentProcess) -> None:
    client = agent.start()
    waiting = Waiting(client)
    short = client.submit(command("sleep", "0.3")).task_id

    os.kill(agent.running.pid, signal.SIGSTOP)
    time.sleep(1.0)  # what is tested is that this second passes without it
    os.kill(agent.running.pid, signal.SIGCONT)

    assert client.wait(short, 60).state == "done"
    waiting.assert_undisturbed(client)


@needs_time_namespace
@pytest.mark.chaos
def test_hours_of_suspend_count_as_time_and_what_is_due_then_is_done(agent: AgentProcess) -> None:
    client = agent.start()
    waiting = Waiting(client)
    has_an_hour = client.submit(command("true", delay_s=0.9 * HOUR_S, expires_after_s=HOUR_S)).task_id
    agent.kill()

    client = agent.start(prefix=("unshare", "--time", "--boottime", str(int(1.5 * HOUR_S)), "--"))

    assert client.wait(waiting.is_due_later, 60).state == "done"
    assert client.wait(has_an_hour, 60).state == "expired"
    assert client.get(waiting.expires_later).state == "delayed"
    agent.kill()  # and a boot clock that is behind again

    client = agent.start()

    assert client.wait(client.submit(command("true")).task_id, 60).state == "done"
    assert client.get(waiting.expires_later).state == "delayed"
