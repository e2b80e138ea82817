"""The fresh file is damaged too, while it is still being filled: the queue finds its own way out of that."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import apsw
import pytest

from skerry.errors import StorageFailed, StoreDamaged
from skerry.ids import TaskId
from skerry.messages import Lane
from skerry.testing import a_task
from task_queue.damage.page_size import PAGE_BYTES
from task_queue.operations import AppendOutbox, Enqueue
from task_queue.task import State
from task_queue.testing import QueueDriver, check_invariants, sqlite_opener
from task_queue.testing_disk import integrity
from task_queue.testing_lossy_disk import LossyDisk, on_lossy_disks
from tests.queue.broken_queue import damage_now, finish_salvage

TASKS, MESSAGES = 400, 200


def zero(path: Path, choice: str) -> None:
    """Make one page all zeros: the first that the query names."""
    db = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    pages: list[tuple[Any, ...]] = db.execute(f"SELECT pageno FROM dbstat WHERE {choice}").fetchall()
    db.close()
    with path.open("r+b") as file:
        file.seek((pages[0][0] - 1) * PAGE_BYTES)
        file.write(bytes(PAGE_BYTES))


@pytest.fixture
def half_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[TaskId]:
    """A queue whose file was damaged, of which about half is brought over, closed; returns its tasks."""
    q = QueueDriver(sqlite_opener(tmp_path))
    ids = [q.ids.next() for _ in range(TASKS)]
    q.apply(*(Enqueue(task_id=task_id, task=a_task()) for task_id in ids))
    q.apply(*(AppendOutbox(lane=Lane.LIVE, kind="x", body=b"%d" % n * 50) for n in range(MESSAGES)))
    q.store.tidy()
    q.store.close()
    zero(tmp_path / "queue.db", "name = 'task' ORDER BY path")
    monkeypatch.setattr("task_queue.sqlite_store.SALVAGE_AT_ONCE_S", 0.0)
    monkeypatch.setattr("task_queue.sqlite_store.SALVAGE_SLICE_S", 0.002)
    q = QueueDriver(sqlite_opener(tmp_path))
    while q.store.depth().by_state[State.READY] < TASKS // 2:
        assert q.store.tidy(), "it is to be under way still"
    q.store.close()
    return ids


def brought_back(q: QueueDriver, folder: Path, ids: list[TaskId]) -> int:
    """Let the queue bring everything over by itself and check that; return how often it met damage."""
    met = 0
    for _ in range(1000):
        try:
            if not q.store.tidy():
                break
        except StoreDamaged:
            met += 1
    assert [q.state(task_id) for task_id in ids] == [State.READY] * TASKS
    assert len(q.store.outbox(Lane.LIVE, 0, limit=1000, limit_bytes=1 << 30)) == MESSAGES
    check_invariants(q.store)
    q.store.close()
    assert integrity(folder / "queue.db") == ["ok"]
    return met


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE meta SET value = x'ff' WHERE name = 'store.salvage'",
        "UPDATE meta SET value = replace(value, 'units', 'unitz') WHERE name = 'store.salvage'",
    ],
)
def test_a_note_of_a_salvage_that_cannot_be_read_or_lies_loses_nothing(
    tmp_path: Path, half_back: list[TaskId], damage: str
) -> None:
    db = apsw.Connection(str(tmp_path / "queue.db"))
    db.execute(damage)
    db.close()

    brought_back(QueueDriver(sqlite_opener(tmp_path)), tmp_path, half_back)


def test_the_page_with_the_note_of_a_salvage_may_be_lost(tmp_path: Path, half_back: list[TaskId]) -> None:
    zero(tmp_path / "queue.db", "name = 'meta' ORDER BY path")

    brought_back(QueueDriver(sqlite_opener(tmp_path)), tmp_path, half_back)


def test_a_salvage_whose_own_commits_meet_damage_is_begun_again_without_a_restart(
    tmp_path: Path, half_back: list[TaskId]
) -> None:
    q = QueueDriver(sqlite_opener(tmp_path))
    stranger = apsw.Connection(str(tmp_path / "queue.db"))
    stranger.execute("UPDATE meta SET value = value")  # the queue believes none of the pages it has in memory
    stranger.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    stranger.close()
    # The newest come first: this is where the next ones go.
    zero(tmp_path / "queue.db", "name = 'sqlite_autoindex_task_1' AND pagetype = 'leaf' ORDER BY path")

    assert brought_back(q, tmp_path, half_back) == 1, "it was not met while under way, or met again and again"


def test_a_file_that_is_set_aside_and_has_no_fresh_one_yet_is_the_one_whose_rows_come(tmp_path: Path) -> None:
    disk, left = LossyDisk("no-fresh-one"), [0]

    def fail_in_time(kind: str) -> None:
        left[0] -= kind in ("write", "sync")
        if left[0] == 0:
            raise apsw.IOError("the disk fails")

    disk.before_step = fail_in_time
    with on_lossy_disks(lambda path: "no-fresh-one"):
        q = QueueDriver(sqlite_opener(tmp_path))
        ids = [q.enqueue() for _ in range(30)]
        left[0] = 12
        with pytest.raises(StorageFailed):
            damage_now(q)
        assert not (tmp_path / "queue.db").exists()

        damage_now(q)
        finish_salvage(q)

        assert sorted(q.drain()) == sorted(ids)
        q.store.close()
