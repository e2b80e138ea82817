"""A repair, once begun, comes to its end: cuts and kills in between lose and repeat nothing."""

from __future__ import annotations

import shutil
from pathlib import Path

import apsw
import pytest

from skerry.errors import StorageFailed, StoreDamaged
from skerry.testing import a_task
from task_queue.damage import repair
from task_queue.damage.page_size import PAGE_BYTES
from task_queue.damage.quarantine import COPIES
from task_queue.damage.salvage import PROGRESS
from task_queue.operations import Enqueue, Enqueued
from task_queue.sqlite_store import SqliteStore
from task_queue.store import TaskFilter
from task_queue.task import State
from task_queue.testing import QueueDriver, check_invariants, sqlite_opener
from tests.queue.broken_queue import finish_salvage


def test_copies_are_bounded_and_the_oldest_goes_first(tmp_path: Path) -> None:
    q = QueueDriver(sqlite_opener(tmp_path))
    task_id = q.enqueue()
    for _ in range(COPIES + 2):
        q.clock.advance(60.0)
        assert isinstance(q.store, SqliteStore)
        q.store.suspect(StoreDamaged("again"))
        q.enqueue()

    names = sorted(path.name[:6] for path in (tmp_path / "quarantine").iterdir())
    assert names == ["000003", "000004", "000005"]
    assert q.state(task_id) is State.READY
    q.store.close()


@pytest.mark.parametrize("upto", ["note", "moved", "made"])
def test_a_power_cut_while_the_file_is_set_aside_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, upto: str
) -> None:
    q = QueueDriver(sqlite_opener(tmp_path))
    ids = [q.enqueue() for _ in range(20)]
    q.store.close()
    path = tmp_path / "queue.db"
    with path.open("r+b") as file:
        file.write(bytes(100))

    class PowerCut(Exception):
        pass

    def cut(*_: object, **__: object) -> None:
        raise PowerCut

    where = {"note": "_move", "moved": None, "made": "replaced"}[upto]
    with monkeypatch.context() as patch:
        if where is None:
            patch.setattr(repair, "start_over", cut)
        else:
            patch.setattr(f"task_queue.damage.quarantine.{where}", cut)
        with pytest.raises(PowerCut):
            q.kill()

    q.kill()

    assert q.drain() == ids
    assert len(list((tmp_path / "quarantine").iterdir())) == 1
    assert not list(tmp_path.glob("*.set-aside"))
    q.store.close()


# --- a queue too large to be brought over at once


def test_work_goes_on_before_everything_is_brought_over(tmp_path: Path, slow: None) -> None:
    q = QueueDriver(sqlite_opener(tmp_path))
    ids = [q.enqueue(idempotency_key=f"k{n}", ordering_key=f"o{n % 7}") for n in range(300)]
    first = q.claim(7)
    for task_id in first:
        q.finish(task_id, q.start(task_id))
    q.store.close()
    with (tmp_path / "queue.db").open("r+b") as file:
        file.write(bytes(16))

    q.kill()
    same = q.one(Enqueue(task_id=q.ids.next(), task=a_task(idempotency_key="k250")))
    with pytest.raises(StorageFailed, match="brought back"):
        q.store.get(ids[40])
    new = q.enqueue(ordering_key="o3")

    assert same == Enqueued(task_id=ids[250], is_new=False)
    assert q.state(new) is State.BLOCKED, "older tasks with its key are still in the old file"
    slices = finish_salvage(q)
    assert slices > 10
    assert q.state(ids[40]) in (State.READY, State.BLOCKED)
    ran = q.drain()
    assert sorted(ran) == sorted({*ids, new} - set(first))
    check_invariants(q.store)
    q.store.close()


def test_while_the_rest_is_brought_over_what_has_come_runs_though_the_old_tables_cannot_be_searched(
    tmp_path: Path, slow: None
) -> None:
    q = QueueDriver(sqlite_opener(tmp_path))
    ids = [q.enqueue() for _ in range(300)]
    q.store.close()
    _zero_root(tmp_path / "queue.db", "task")
    q.kill()
    for _ in range(20):
        q.store.tidy()

    ran = q.drain(window=5)
    progress = q.store.meta(PROGRESS)
    finish_salvage(q)

    assert len(ran) > 10
    assert isinstance(progress, dict)
    assert len(progress["ahead"]) < 5, "pages that are brought over before their turn are noted in few words"
    assert sorted(ran + q.drain()) == sorted(ids)
    check_invariants(q.store)
    q.store.close()


def _zero_root(database: Path, table: str) -> None:
    db = apsw.Connection(str(database), flags=apsw.SQLITE_OPEN_READONLY)
    ((root,),) = db.execute("SELECT rootpage FROM sqlite_schema WHERE name = ?", (table,))
    db.close()
    with database.open("r+b") as file:
        file.seek((root - 1) * PAGE_BYTES)
        file.write(bytes(PAGE_BYTES))


def test_a_salvage_goes_on_after_a_kill_and_brings_nothing_over_twice(tmp_path: Path, slow: None) -> None:
    q = QueueDriver(sqlite_opener(tmp_path))
    ids = [q.enqueue() for _ in range(200)]
    q.store.close()
    with (tmp_path / "queue.db").open("r+b") as file:
        file.write(bytes(16))
    q.kill()

    ran: list[str] = []
    for _ in range(12):
        for _ in range(6):
            q.store.tidy()
        ran += q.drain(window=5)
        q.kill()
    finish_salvage(q)
    ran += q.drain()

    assert len(ran) == len(set(ran)), "a task that had ended was brought over again"
    assert sorted(ran) == sorted(ids)
    check_invariants(q.store)
    q.store.close()


def test_a_second_damage_before_the_first_is_over_loses_nothing(tmp_path: Path, slow: None) -> None:
    q = QueueDriver(sqlite_opener(tmp_path))
    ids = [q.enqueue() for _ in range(200)]
    q.store.close()
    for _ in range(2):
        with (tmp_path / "queue.db").open("r+b") as file:
            file.write(bytes(16))
        q.kill()
        for _ in range(8):
            q.store.tidy()
        q.store.close()
        q.clock.advance(60.0)
    q.kill()
    finish_salvage(q)

    assert q.drain() == ids
    assert len(q.store.find(TaskFilter(limit=1000))) == 200
    check_invariants(q.store)
    shutil.rmtree(tmp_path / "quarantine")
    q.store.close()
