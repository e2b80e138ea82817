"""The supervisor starts workers without running a line of Python between fork and exec."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from pathlib import Path

import pytest

from federation.rounds.supervisor import Supervisor, WorkerCommand
from policy.guard.registry import make_guard
from policy.testing import a_device, a_view
from skerry.testing import a_task

#: Takes the words that every worker gets, and leaves its niceness and its parent behind.
STAND_IN = """
import argparse, os, time
from pathlib import Path
parser = argparse.ArgumentParser()
for name in ("socket", "run", "parent"):
    parser.add_argument(f"--{name}")
given = parser.parse_args()
ends = time.monotonic() + 10
while os.nice(0) == os.getpriority(os.PRIO_PROCESS, os.getppid()) and time.monotonic() < ends:
    time.sleep(0.01)  # the parent sets it as soon as it knows the process
Path(given.socket).write_text(f"{os.nice(0)} {given.run} {given.parent} {os.getppid()}")
"""


def run_once(directory: Path, nice: int) -> str:
    """What a worker that the supervisor starts once leaves behind."""
    (directory / "stand_in.py").write_text(STAND_IN)
    told = directory / "told"
    command = WorkerCommand(
        python=Path(sys.executable),
        module="stand_in",
        environment={"PYTHONPATH": str(directory)},
        nice=nice,
    )
    versions = iter([0, None])

    async def progress() -> int | None:
        return next(versions)

    async def give_up(reason: str) -> None:
        raise AssertionError(reason)

    async def story() -> None:
        supervisor = Supervisor(command, told, "r1", progress=progress, give_up=give_up)
        supervisor.start()
        await supervisor.wait()

    asyncio.run(story())
    return told.read_text()


def test_a_worker_is_niced_and_knows_whose_child_it_is(tmp_path: Path) -> None:
    nice, run, parent, real = run_once(tmp_path, nice=3).split()

    assert (nice, run) == (str(os.nice(0) + 3), "r1")
    assert parent == real == str(os.getpid())


def test_threads_with_a_rules_engine_are_not_torn_down_in_a_forked_child(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # pytest's own hook would keep in the child what a service prints.
    monkeypatch.setattr(sys, "unraisablehook", lambda said: os.write(2, str(said.exc_value).encode()))
    guard, cpu = make_guard(), a_device("cpu")
    used, go_on = threading.Event(), threading.Event()

    def use() -> None:
        guard.verdicts(a_task(), a_view(cpu), [cpu])
        used.set()
        go_on.wait(30)

    thread = threading.Thread(target=use)
    thread.start()
    assert used.wait(10)
    run_once(tmp_path, nice=1)
    go_on.set()
    thread.join()

    assert "unsendable" not in capfd.readouterr().err
