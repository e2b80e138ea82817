"""Power cuts of a whole agent, on a file system that forgets what was not synced: files and folders alike.

The counts of docs/evidence/fuse-cuts.json come from the same code: `make torture ARGS=files`.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from skerry.errors import StorageFailed
from skerry.task import CommandSpec, Resources, TaskSpec
from tests.chaos.fuse_cuts import PATIENCE_S, Machine, lacks, run_bout

needs_fuse = pytest.mark.skipif(bool(lacks()), reason=f"no file system of our own: {lacks()}")


@needs_fuse
@pytest.mark.chaos
def test_an_agent_whose_power_is_cut_has_lost_nothing_and_does_nothing_twice(tmp_path: Path) -> None:
    bout = run_bout(tmp_path, seed=1, points=6)

    assert bout.violations == ()
    assert bout.in_start
    assert min(bout.accepted, bout.seen_done, bout.effects) > 5, "too little was at stake"


@needs_fuse
@pytest.mark.chaos
def test_the_file_system_catches_an_agent_that_does_not_sync_its_commits(tmp_path: Path) -> None:
    bout = run_bout(tmp_path, seed=3, points=2, synchronous="normal")

    assert any("is lost" in each for each in bout.violations), "the control must lose something"


def until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        with suppress(StorageFailed):  # a read may meet the file just when it is opened anew
            if is_so():
                return
        time.sleep(0.02)  # processes of their own; polled with a deadline
    raise AssertionError("it did not come to that")


def shell(line: str, *words: str, **fields: float) -> TaskSpec:
    resources = Resources(cpu_millicores=100, memory_bytes=1 << 26)
    return TaskSpec(spec=CommandSpec(argv=("sh", "-c", line, *words)), resources=resources, **fields)  # type: ignore[arg-type]


@needs_fuse
@pytest.mark.chaos
def test_an_agent_whose_disk_becomes_read_only_says_so_and_goes_on_once_it_can_be_written(
    tmp_path: Path,
) -> None:
    machine, go = Machine(tmp_path, random.Random(1), "full"), tmp_path / "go"
    witness = machine.witness
    line = f"echo began >> {witness}; while ! test -e {go}; do sleep 0.02; done; echo ran >> {witness}"
    try:
        machine.start()
        machine.wait_ready()
        with machine.client() as client:
            running = client.submit(shell(line)).task_id
            waiting = client.submit(shell("true", delay_s=3600.0)).task_id
            until(lambda: witness.read_text() == "began\n")

            machine.disk.allow_changes(False)
            with pytest.raises(StorageFailed, match="the disk refused the write, nothing was accepted"):
                client.submit(shell("true"))
            go.touch()
            until(lambda: witness.read_text() == "began\nran\n")
            until(
                lambda: "can only be read: mount its file system" in client.node().alarms.get("storage", "")
            )
            assert not client.is_ready()
            until(lambda: client.get(running).state == "running")  # its end cannot be written yet
            until(lambda: client.get(waiting).state == "delayed")

            machine.disk.allow_changes(True)
            until(client.is_ready)
            until(lambda: client.get(running).state == "done")
            until(lambda: "storage" not in client.node().alarms)
            later = client.submit(shell("true")).task_id
            until(lambda: client.get(later).state == "done")
        assert witness.read_text() == "began\nran\n", "it ran once"
    finally:
        machine.kill()
