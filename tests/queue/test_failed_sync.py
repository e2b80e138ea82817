"""Storage that refuses single writes and syncs: a commit is whole or absent, and the answer says which."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from skerry.errors import StorageFailed
from skerry.messages import Lane
from skerry.testing import ManualClock, a_task
from task_queue import sqlite_file
from task_queue.operations import Enqueue, Enqueued, Finish
from task_queue.sqlite_store import SqliteStore
from task_queue.store import TaskFilter
from task_queue.testing import ROOMY, SUCCEEDED, QueueDriver, check_invariants

NAME = "failing"


class FailingFile(apsw.VFSFile):
    """A file whose writes and syncs fail when the plan says so."""

    def __init__(self, vfs: FailingDisk, name: str | apsw.URIFilename | None, flags: list[int]) -> None:
        self._disk = vfs
        super().__init__("", name, flags)

    def xWrite(self, data: bytes, offset: int) -> None:
        self._disk.step()
        super().xWrite(data, offset)

    def xSync(self, flags: int) -> None:
        super().xSync(flags)
        self._disk.step()  # the kernel has the bytes, and says that the disk may not


class FailingDisk(apsw.VFS):
    """The system's files, with a countdown to the next failure."""

    def __init__(self) -> None:
        self.countdown = -1
        super().__init__(NAME, "")

    def step(self) -> None:
        self.countdown -= 1
        if self.countdown == 0:
            raise apsw.IOError("injected")

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> FailingFile:
        return FailingFile(self, name, flags)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[FailingDisk]:
    disk = FailingDisk()

    def connection(name: str, *, flags: int) -> apsw.Connection:
        return real(name, flags=flags, vfs=NAME)

    real = apsw.Connection
    monkeypatch.setattr(sqlite_file.apsw, "Connection", connection)
    yield disk
    disk.unregister()


@pytest.mark.parametrize("first", [1, 2, 3, 4, 7, 11])
def test_a_refused_write_fails_one_commit_and_the_answers_match_the_file(
    disk: FailingDisk, tmp_path: Path, first: int
) -> None:
    clock = ManualClock()

    def open_store(clock: ManualClock) -> SqliteStore:
        return SqliteStore.open(tmp_path / "queue.db", now=clock.now(), wall_s=clock.wall_s, limits=ROOMY)

    q = QueueDriver(open_store, clock)
    accepted, in_doubt, failures = [], [], 0
    for n in itertools.count():
        task_id = q.ids.next()
        disk.countdown = first if n % 2 else -1
        try:
            q.one(Enqueue(task_id=task_id, task=a_task(("echo", "x" * 3000))))
            accepted.append(task_id)
        except StorageFailed:
            failures += 1
            in_doubt.append(task_id)
        disk.countdown = -1
        if n == 12:
            break
    check_invariants(q.store)
    absent = [task_id for task_id in in_doubt if q.store.get(task_id) is None]
    again = [q.one(Enqueue(task_id=task_id, task=a_task())) for task_id in in_doubt]

    assert (failures, len(accepted)) == (6, 7)
    assert absent == in_doubt, "a commit that was reported as failed is there"
    assert all(isinstance(answer, Enqueued) and answer.is_new for answer in again)
    q.kill()
    assert {record.task_id for record in q.store.find(TaskFilter())} == {*accepted, *in_doubt}
    check_invariants(q.store)
    q.store.close()


def test_a_success_whose_sync_failed_can_be_committed_again(disk: FailingDisk, tmp_path: Path) -> None:
    def open_store(clock: ManualClock) -> SqliteStore:
        return SqliteStore.open(tmp_path / "queue.db", now=clock.now(), wall_s=clock.wall_s, limits=ROOMY)

    q = QueueDriver(open_store)
    task_id, fence = q.run()
    finish = Finish(task_id=task_id, fence=fence, outcome=SUCCEEDED)

    for countdown in range(1, 6):
        disk.countdown = countdown
        try:
            q.one(finish)
        except StorageFailed:
            continue
    disk.countdown = -1
    q.one(finish)

    assert q.kinds(Lane.BACKLOG) == ["task.ended"]
    check_invariants(q.store)
    q.store.close()
