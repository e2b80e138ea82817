"""A disk that errs, or can only be read: one operation fails, the process goes on, nothing is set aside."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from skerry.errors import StorageFailed
from skerry.testing import ManualClock, a_task
from task_queue import sqlite_file
from task_queue.operations import Enqueue, Enqueued
from task_queue.sqlite_store import SqliteStore
from task_queue.store import TaskFilter
from task_queue.task import State
from task_queue.testing import ROOMY, QueueDriver, check_invariants
from task_queue.writer import StoreWriter

NAME = "erring"
_WRITES = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE


class ErringFile(apsw.VFSFile):
    """A file that asks its disk before each access."""

    def __init__(self, disk: ErringDisk, name: str | apsw.URIFilename | None, flags: list[int]) -> None:
        self._disk = disk
        super().__init__("", name, flags)

    def xRead(self, amount: int, offset: int) -> bytes:
        self._disk.step("read")
        return super().xRead(amount, offset)

    def xWrite(self, data: bytes, offset: int) -> None:
        self._disk.step("write")
        super().xWrite(data, offset)

    def xSync(self, flags: int) -> None:
        super().xSync(flags)
        self._disk.step("sync")


class ErringDisk(apsw.VFS):
    """The system's files. every: each so many-th access of a kind fails.  is_read_only: none is written."""

    def __init__(self) -> None:
        self.every: dict[str, int] = {}
        self.is_read_only = False
        self.errors = 0
        self._count: dict[str, int] = {}
        super().__init__(NAME, "")

    def step(self, kind: str) -> None:
        if self.is_read_only and kind != "read":
            raise apsw.ReadOnlyError("the disk can only be read")
        self._count[kind] = self._count.get(kind, 0) + 1
        if self.every.get(kind) and self._count[kind] % self.every[kind] == 0:
            self.errors += 1
            raise apsw.IOError("injected")

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> ErringFile:
        return ErringFile(self, name, flags)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[ErringDisk]:
    """The disk under every connection that a store opens."""
    disk = ErringDisk()
    real = apsw.Connection

    def connection(name: str, *, flags: int = _WRITES) -> apsw.Connection:
        return real(name, flags=flags, vfs=NAME)

    monkeypatch.setattr(sqlite_file.apsw, "Connection", connection)
    yield disk
    disk.unregister()


def a_store(folder: Path) -> QueueDriver:
    def open_store(clock: ManualClock) -> SqliteStore:
        return SqliteStore.open(folder / "queue.db", now=clock.now(), wall_s=clock.wall_s, limits=ROOMY)

    return QueueDriver(open_store)


@pytest.mark.parametrize("kind", ["read", "write", "sync"])
@pytest.mark.parametrize("every", [3, 7, 20])
def test_errors_of_every_nth_access_fail_one_operation_each_and_lose_nothing(
    disk: ErringDisk, tmp_path: Path, kind: str, every: int
) -> None:
    q = a_store(tmp_path)
    writer = StoreWriter(q.store, q.clock)
    accepted: list[str] = []
    refused = 0
    for _ in range(60):
        disk.every = {kind: every}
        task_id = q.ids.next()
        try:
            writer.submit([Enqueue(task_id=task_id, task=a_task())]).result(30)
            accepted.append(task_id)
            writer.read(lambda store: store.find(TaskFilter(limit=500))).result(30)
        except StorageFailed:
            refused += 1
        disk.every = {}
    writer.close()

    assert q.store.salvaged is None, "an error of the disk is no damage"
    assert not (tmp_path / "quarantine").exists()
    present = {record.task_id for record in q.store.find(TaskFilter(limit=500))}
    assert set(accepted) <= present
    assert disk.errors or kind == "read", "nothing was injected"
    check_invariants(q.store)
    q.kill()
    assert set(accepted) <= set(q.drain(window=500))
    q.store.close()


def test_a_disk_that_can_only_be_read_refuses_in_words_and_heals_without_a_restart(
    disk: ErringDisk, tmp_path: Path
) -> None:
    q = a_store(tmp_path)
    task_id = q.enqueue()

    disk.is_read_only = True
    for _ in range(3):
        with pytest.raises(StorageFailed, match="read"):
            q.enqueue()
    during = q.state(task_id)
    disk.is_read_only = False
    later = q.one(Enqueue(task_id=q.ids.next(), task=a_task()))

    assert during is State.READY
    assert isinstance(later, Enqueued)
    assert q.store.salvaged is None
    assert len(q.drain()) == 2
    check_invariants(q.store)
    q.store.close()
