"""Power cuts, simulated: un-synced writes are lost whole, in part or at random, and every promise is kept.

A file system of our own remembers which bytes were not synced. At a cut it keeps none, a prefix, or a random
half of them; the files that are left are opened by a store on the ordinary file system.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from skerry.ids import TaskId, TaskIdSource
from skerry.testing import ManualClock, a_task
from task_queue import sqlite_file
from task_queue.operations import Claim, Claimed, Enqueue, Finish, Start, Started
from task_queue.sqlite_store import SqliteStore
from task_queue.task import State
from task_queue.testing import ROOMY, SUCCEEDED, check_invariants

NAME = "lossy"
SECTOR = 512
Write = tuple[int, bytes]


class LossyDisk(apsw.VFS):
    """The system's files, with what was written since each one's last sync."""

    def __init__(self) -> None:
        self.synced: dict[str, bytes] = {}
        self.pending: dict[str, list[Write]] = {}
        super().__init__(NAME, "")

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> LossyFile:
        path = name.filename() if isinstance(name, apsw.URIFilename) else str(name)
        self.synced.setdefault(path, b"")
        self.pending.setdefault(path, [])
        return LossyFile(self, path, name, flags)

    def xDelete(self, filename: str, syncdir: bool) -> None:
        super().xDelete(filename, syncdir)
        self.synced.pop(filename, None)
        self.pending.pop(filename, None)

    def cut(self, rng: random.Random, folder: Path) -> None:
        """Write what a disk may hold after a cut into folder."""
        for path, content in self.synced.items():
            sectors = [part for write in self.pending[path] for part in in_sectors(write)]
            match rng.choice(["nothing", "prefix", "half"]):
                case "nothing":
                    kept = []
                case "prefix":
                    kept = sectors[: rng.randint(0, len(sectors))]
                case _:
                    kept = [part for part in sectors if rng.random() < 0.5]
            (folder / Path(path).name).write_bytes(written(content, kept))


class LossyFile(apsw.VFSFile):
    """One of its files."""

    def __init__(
        self, disk: LossyDisk, path: str, name: str | apsw.URIFilename | None, flags: list[int]
    ) -> None:
        self._disk = disk
        self._path = path
        super().__init__("", name, flags)

    def xWrite(self, data: bytes, offset: int) -> None:
        super().xWrite(data, offset)
        self._disk.pending[self._path].append((offset, bytes(data)))

    def xTruncate(self, size: int) -> None:
        super().xTruncate(size)
        self.settle(size)  # kept at once: the worst a truncation can do is to have happened

    def xSync(self, flags: int) -> None:
        super().xSync(flags)
        self.settle(None)

    def settle(self, size: int | None) -> None:
        pending = self._disk.pending[self._path]
        content = written(self._disk.synced[self._path], pending)
        self._disk.synced[self._path] = content if size is None else content[:size]
        pending.clear()


def in_sectors(write: Write) -> Iterator[Write]:
    """Yield a write in the pieces that a disk keeps whole."""
    offset, data = write
    start = 0
    while start < len(data):
        end = min(len(data), start + SECTOR - (offset + start) % SECTOR)
        yield offset + start, data[start:end]
        start = end


def written(content: bytes, writes: list[Write]) -> bytes:
    """Return content with the writes done, in order."""
    buffer = bytearray(content)
    for offset, data in writes:
        buffer.extend(bytes(max(0, offset - len(buffer))))
        buffer[offset : offset + len(data)] = data
    return bytes(buffer)


@pytest.fixture
def disk() -> Iterator[LossyDisk]:
    disk = LossyDisk()
    yield disk
    disk.unregister()


class Session:
    """Work on the lossy disk, and what it was promised."""

    def __init__(self, path: Path, seed: int) -> None:
        self.clock = ManualClock()
        self.rng = random.Random(seed)
        self.store = SqliteStore.open(path, now=self.clock.now(), wall_s=self.clock.wall_s, limits=ROOMY)
        self.ids = TaskIdSource(self.clock.wall_s)
        self.accepted: list[TaskId] = []
        self.started: list[Started] = []
        self.done: list[TaskId] = []

    def work(self) -> None:
        match self.rng.choice(["enqueue", "start", "finish"]):
            case "enqueue":
                ids = [self.ids.next() for _ in range(self.rng.choice([1, 10]))]
                self.apply(*(Enqueue(task_id=i, task=a_task(("echo", "x" * 400))) for i in ids))
                self.accepted += ids
            case "start":
                (claimed,) = self.apply(Claim(limit=3))
                assert isinstance(claimed, Claimed)
                answers = self.apply(*(Start(task_id=t.task_id, device="cpu0") for t in claimed.tasks))
                self.started += [answer for answer in answers if isinstance(answer, Started)]
            case _:
                ending, self.started = self.started, []
                self.apply(*(Finish(task_id=s.task_id, fence=s.fence, outcome=SUCCEEDED) for s in ending))
                self.done += [each.task_id for each in ending]

    def apply(self, *ops: object) -> list[object]:
        return list(self.store.apply(ops, now=self.clock.now()))  # type: ignore[arg-type]


def states_after_cuts(
    disk: LossyDisk, folder: Path, *, seed: int, cuts: int
) -> Iterator[tuple[Session, Path]]:
    """Work, and cut the power on a copy again and again; yield what is left each time."""
    home = folder / "home"
    home.mkdir()
    session = Session(home / "queue.db", seed)
    for cut in range(cuts):
        for _ in range(session.rng.randint(1, 12)):
            session.work()
        after = folder / f"cut{cut}"
        after.mkdir()
        disk.cut(session.rng, after)
        (after / "queue.db-shm").unlink(missing_ok=True)  # memory of the processes: gone with the power
        yield session, after / "queue.db"
    session.store.close()


def lost_after(session: Session, path: Path) -> list[TaskId]:
    """Open what a cut has left; return the promises that it does not keep."""
    clock = ManualClock(boot_id="boot-after")
    store = SqliteStore.open(path, now=clock.now(), wall_s=clock.wall_s, limits=ROOMY)
    try:
        check_invariants(store)
        lost = [task_id for task_id in session.accepted if store.get(task_id) is None]
        records = [(task_id, store.get(task_id)) for task_id in session.done]
        return lost + [i for i, record in records if record is None or record.state is not State.DONE]
    finally:
        store.close()


def on_lossy_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    real = apsw.Connection

    def connection(name: str, *, flags: int) -> apsw.Connection:
        return real(name, flags=flags, vfs=NAME if "/home/" in name else None)

    monkeypatch.setattr(sqlite_file.apsw, "Connection", connection)


@pytest.mark.parametrize("seed", range(4))
def test_no_power_cut_loses_what_was_acknowledged(
    disk: LossyDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    on_lossy_disk(monkeypatch)

    lost = [lost_after(*state) for state in states_after_cuts(disk, tmp_path, seed=seed, cuts=12)]

    assert lost == [[]] * 12


def test_the_simulation_catches_a_store_that_does_not_sync_its_commits(
    disk: LossyDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_lossy_disk(monkeypatch)
    monkeypatch.setattr(sqlite_file, "_SETTINGS", ("synchronous = NORMAL",))

    lost = [lost_after(*state) for state in states_after_cuts(disk, tmp_path, seed=1, cuts=12)]

    assert any(lost), "the control must lose something, or the test above proves nothing"
