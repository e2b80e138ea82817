"""What is asked of a queue while rows of a damaged file are still to be brought over."""

from __future__ import annotations

import random
from pathlib import Path

import apsw
import msgspec
import pytest

from skerry.errors import StorageFailed, StoreDamaged
from skerry.fence import Fence
from skerry.messages import Lane
from skerry.testing import a_task
from task_queue import sqlite_store
from task_queue.damage.log_frames import FRAME_HEAD_BYTES, HEADER_BYTES
from task_queue.damage.page_size import PAGE_BYTES
from task_queue.operations import (
    Advance,
    Cancel,
    CountLoss,
    Enqueue,
    Enqueued,
    Finish,
    MarkInbox,
    PutMeta,
)
from task_queue.sqlite_store import SqliteStore
from task_queue.store import TaskFilter
from task_queue.task import State
from task_queue.testing import ROOMY, SUCCEEDED, QueueDriver, check_invariants, ended_rows, place, sqlite_opener
from tests.queue.broken_queue import check_whole

FORGETFUL = msgspec.structs.replace(ROOMY, keep_ended=0)


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every slice is as short as can be, and none is waited for."""
    monkeypatch.setattr(sqlite_store, "SALVAGE_AT_ONCE_S", 0.0)
    monkeypatch.setattr(sqlite_store, "SALVAGE_SLICE_S", 0.0)


def damage_now(q: QueueDriver) -> None:
    assert isinstance(q.store, SqliteStore)
    q.clock.advance(60.0)
    q.store.suspect(StoreDamaged("seen elsewhere"))
    q.one(MarkInbox(source="x", epoch="x", lane=Lane.LIVE, upto=1))


def finish_salvage(q: QueueDriver) -> None:
    for _ in range(100_000):
        if not q.store.tidy():
            return
    raise AssertionError("never over")


def test_a_remembered_key_is_known_before_it_is_brought_over(tmp_path: Path, slow: None) -> None:
    q = QueueDriver(sqlite_opener(tmp_path), limits=FORGETFUL)
    ids = {}
    for n in range(300):
        ids[f"k{n}"] = q.enqueue(idempotency_key=f"k{n}")
    q.drain()
    q.clock.advance(1.0)
    while q.store.find(TaskFilter(limit=1000)):
        q.one(Advance())
    assert q.one(Enqueue(task_id=q.ids.next(), task=a_task(idempotency_key="k5"))) == Enqueued(
        task_id=ids["k5"], is_new=False
    )
    damage_now(q)

    again = []
    for n in (5, 150, 299):
        try:
            again.append(q.one(Enqueue(task_id=q.ids.next(), task=a_task(idempotency_key=f"k{n}"))))
        except StorageFailed:
            continue
    finish_salvage(q)

    assert all(isinstance(a, Enqueued) and not a.is_new for a in again), again
    assert q.drain() == []
    q.store.close()


def test_a_remembered_placed_task_does_not_run_again_while_rows_come(tmp_path: Path, slow: None) -> None:
    q = QueueDriver(sqlite_opener(tmp_path), limits=FORGETFUL)
    ids = [q.ids.next() for _ in range(300)]
    for task_id in ids:
        place(q, task_id, Fence((1, 1)))
    q.drain()
    q.clock.advance(1.0)
    while q.store.find(TaskFilter(limit=1000)):
        q.one(Advance())
    damage_now(q)
    for task_id in ids[::50]:
        try:
            place(q, task_id, Fence((1, 2)))
        except StorageFailed:
            pass
    finish_salvage(q)
    assert q.drain() == []
    q.store.close()


def test_a_task_forgotten_while_rows_come_is_not_marked_as_lost(tmp_path: Path, slow: None) -> None:
    q = QueueDriver(sqlite_opener(tmp_path), limits=msgspec.structs.replace(ROOMY, keep_ended=10))
    ids = [q.enqueue(idempotency_key=f"k{n}") for n in range(60)]
    damage_now(q)
    ran = []
    is_on = True
    while is_on:
        is_on = q.store.tidy()
        ran += q.drain()
        q.clock.advance(1.0)
        q.one(Advance())
    assert sorted(ran) == sorted(ids)
    q.clock.advance(1.0)
    unknown = q.store.find(TaskFilter(states=(State.UNKNOWN,), limit=1000))
    assert not unknown, len(unknown)
    for n in range(60):
        assert q.one(Enqueue(task_id=q.ids.next(), task=a_task(idempotency_key=f"k{n}"))) == Enqueued(
            task_id=ids[n], is_new=False
        )
    check_invariants(q.store)
    q.store.close()


@pytest.mark.parametrize("by", ["cancel", "finish", "delay", "expire"])
def test_an_ordering_key_keeps_its_order_while_rows_come(tmp_path: Path, slow: None, by: str) -> None:
    q = QueueDriver(sqlite_opener(tmp_path))
    first = q.enqueue(ordering_key="o", delay_s=1000.0 if by == "delay" else None)
    fence = None
    if by == "finish":
        assert q.claim() == [first]
        fence = q.start(first)
    rest = [q.enqueue(ordering_key="o") for _ in range(20)]
    [q.enqueue() for _ in range(200)]
    rest.append(q.enqueue(ordering_key="o"))
    last = q.enqueue(ordering_key="o", expires_after_s=70.0 if by == "expire" else None)
    ids = [first, *rest, last]
    if by == "delay":
        pytest.skip("a delayed one lets others pass")
    damage_now(q)
    for _ in range(200):  # until the newest pages of tasks have come
        q.store.tidy()
        if q.store.find(TaskFilter(limit=1)):
            break
    match by:
        case "cancel":
            q.one(Cancel(task_id=last))
        case "finish":
            q.one(Finish(task_id=first, fence=fence, outcome=SUCCEEDED))  # type: ignore[arg-type]
        case "expire":
            q.clock.advance(100.0)
            q.one(Advance())
    ran = q.drain()
    finish_salvage(q)
    ran += q.drain(window=1)
    check_invariants(q.store)
    order = [task_id for task_id in ran if task_id in ids]
    assert order == [i for i in ids if i in order]
    q.store.close()


def twice_damaged(tmp_path: Path, done: int = 0, total: int = 200) -> tuple[QueueDriver, list]:
    q = QueueDriver(sqlite_opener(tmp_path))
    ids = [q.enqueue(idempotency_key=f"k{n}") for n in range(total)]
    if done:
        q.one
        claimed = q.claim(done)
        for task_id in claimed:
            q.finish(task_id, q.start(task_id))
    return q, ids


def test_a_key_in_the_older_of_two_damaged_files_is_known(tmp_path: Path, slow: None) -> None:
    q, ids = twice_damaged(tmp_path, done=50)
    damage_now(q)
    for _ in range(8):
        q.store.tidy()
    damage_now(q)
    q.store.tidy()
    answers = {}
    for n in (3, 30, 100):
        try:
            answers[n] = q.one(Enqueue(task_id=q.ids.next(), task=a_task(idempotency_key=f"k{n}")))
        except StorageFailed as error:
            answers[n] = None
    finish_salvage(q)
    ran = q.drain()
    assert all(a is None or a == Enqueued(task_id=ids[n], is_new=False) for n, a in answers.items()), answers
    assert sorted(ran) == sorted(ids[50:])
    q.store.close()


def test_an_attempt_in_the_older_of_two_damaged_files_can_end(tmp_path: Path, slow: None) -> None:
    q = QueueDriver(sqlite_opener(tmp_path))
    task_id, fence = q.run()
    [q.enqueue() for _ in range(100)]
    damage_now(q)
    q.store.tidy()
    damage_now(q)
    for _ in range(3):
        q.store.tidy()
    try:
        answer = q.finish(task_id, fence)
    except StorageFailed:
        answer = None
    finish_salvage(q)
    if answer is None:
        answer = q.finish(task_id, fence)
    assert q.state(task_id) is State.DONE, answer
    q.store.close()


def test_a_cancel_of_a_task_in_the_older_of_two_damaged_files_holds(tmp_path: Path, slow: None) -> None:
    q, ids = twice_damaged(tmp_path)
    damage_now(q)
    q.store.tidy()
    damage_now(q)
    for _ in range(3):
        q.store.tidy()
    try:
        answer = q.one(Cancel(task_id=ids[3]))
    except StorageFailed:
        finish_salvage(q)
        answer = q.one(Cancel(task_id=ids[3]))
    finish_salvage(q)
    assert q.state(ids[3]) is State.CANCELLED, answer
    q.store.close()


def test_a_task_in_the_older_of_two_damaged_files_is_not_said_to_be_missing(
    tmp_path: Path, slow: None
) -> None:
    q, ids = twice_damaged(tmp_path)
    damage_now(q)
    q.store.tidy()
    damage_now(q)
    q.store.tidy()
    with pytest.raises(StorageFailed, match="brought back"):
        q.store.get(ids[3])
    q.store.close()


def test_the_totals_of_losses_grow_only(tmp_path: Path, slow: None) -> None:
    q = QueueDriver(sqlite_opener(tmp_path), limits=FORGETFUL)
    for n in range(100):
        q.enqueue(idempotency_key=f"k{n}")
    q.drain()
    q.clock.advance(1.0)
    while q.store.find(TaskFilter(limit=1000)):
        q.one(Advance())
    q.one(CountLoss(lost_class="task", reason="x", rows=100))
    damage_now(q)
    q.one(CountLoss(lost_class="task", reason="x", rows=1))
    finish_salvage(q)
    assert {(l.lost_class, l.reason): l.rows for l in q.store.losses()} == {("task", "x"): 101}
    q.store.close()


def test_nothing_is_said_to_be_lost_that_was_written_anew(tmp_path: Path, slow: None) -> None:
    q = QueueDriver(sqlite_opener(tmp_path))
    q.one(PutMeta(name="a", value=1))
    q.one(MarkInbox(source="c", epoch="e", lane=Lane.LIVE, upto=5))
    q.enqueue()
    damage_now(q)
    q.one(PutMeta(name="a", value=2))
    q.one(MarkInbox(source="c", epoch="e", lane=Lane.LIVE, upto=7))
    finish_salvage(q)
    assert q.store.meta("a") == 2
    assert q.store.inbox_mark("c", "e", Lane.LIVE) == 7
    assert q.store.salvaged is not None
    assert q.store.salvaged.rows_lost == 0, q.store.salvaged
    q.store.close()


def test_the_end_of_a_task_placed_again_is_told_while_its_story_is_to_come(tmp_path: Path, slow: None) -> None:
    q = QueueDriver(sqlite_opener(tmp_path))
    ids = [q.ids.next() for _ in range(50)]
    for task_id in ids:
        place(q, task_id, Fence((1, 1)))
    q.drain()
    damage_now(q)
    before = len(ended_rows(q, Lane.LIVE))
    place(q, ids[4], Fence((1, 2)))
    new = [m for m in ended_rows(q, Lane.LIVE) if m.task_id == ids[4]]
    assert new[-1].outcome.status == "succeeded", new[-1]
    q.store.close()


def test_a_story_leaves_with_its_task_while_rows_come(tmp_path: Path, slow: None) -> None:
    q = QueueDriver(sqlite_opener(tmp_path), limits=FORGETFUL)
    [q.enqueue() for n in range(60)]
    q.drain()
    damage_now(q)
    while q.store.tidy():
        q.clock.advance(1.0)
        q.one(Advance())
    q.clock.advance(1.0)
    q.one(Advance())
    assert not q.store.find(TaskFilter(limit=1000))
    q.store.close()
    db = apsw.Connection(str(tmp_path / "queue.db"))
    assert db.execute("SELECT count(*) FROM event").fetchall() == [(0,)]
    db.close()


@pytest.mark.parametrize("seed", range(6))
def test_a_sector_of_zeros_in_the_log_takes_no_commit_behind_it(tmp_path: Path, seed: int) -> None:
    draw = random.Random(seed)
    q = QueueDriver(sqlite_opener(tmp_path / "a"))
    ids = [q.enqueue() for _ in range(60)]
    (tmp_path / "b").mkdir()
    for part in ("", "-wal"):
        (tmp_path / "b" / f"queue.db{part}").write_bytes((tmp_path / "a" / f"queue.db{part}").read_bytes())
    q.store.close()
    log = tmp_path / "b" / "queue.db-wal"
    data = bytearray(log.read_bytes())
    frames = (len(data) - HEADER_BYTES) // (FRAME_HEAD_BYTES + PAGE_BYTES)
    number = draw.randrange(frames // 3, frames // 2)
    at = (HEADER_BYTES + number * (FRAME_HEAD_BYTES + PAGE_BYTES)) // 512 * 512
    data[at : at + 512] = bytes(512)
    log.write_bytes(data)
    q = QueueDriver(sqlite_opener(tmp_path / "b"))
    present = {r.task_id for r in q.store.find(TaskFilter(limit=1000))}
    missing = [n for n, i in enumerate(ids) if i not in present]
    assert len(missing) < 12, missing
    assert isinstance(q.store, SqliteStore)
    assert q.store.salvaged is not None
    q.store.close()


# --- damage that kept a queue from starting, or hid rows


def _pages(path: Path, where: str) -> list[int]:
    db = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    found = [n for (n,) in db.execute(f"SELECT pageno FROM dbstat WHERE {where} ORDER BY pageno")]
    db.close()
    return found


def _whole(tmp_path: Path) -> tuple[QueueDriver, Path, list]:
    q = QueueDriver(sqlite_opener(tmp_path))
    ids = [q.enqueue(idempotency_key=f"k{n}") for n in range(100)]
    q.store.tidy()
    q.store.close()
    return q, tmp_path / "queue.db", ids


@pytest.mark.parametrize("by", ["body", "event", "outbox"])
def test_a_page_of_another_table_in_the_place_of_the_store_s_own_row(tmp_path: Path, by: str) -> None:
    q = QueueDriver(sqlite_opener(tmp_path))
    ids = [q.enqueue(idempotency_key=f"k{n}") for n in range(100)]
    for task_id in (done := q.claim(30)):
        q.finish(task_id, q.start(task_id))
    q.store.tidy()
    q.store.close()
    path = tmp_path / "queue.db"
    data = bytearray(path.read_bytes())
    (store,) = _pages(path, "name = 'store'")
    other = _pages(path, f"name = '{by}' AND pagetype = 'leaf'")[1]
    data[(store - 1) * PAGE_BYTES : store * PAGE_BYTES] = data[(other - 1) * PAGE_BYTES : other * PAGE_BYTES]
    path.write_bytes(data)

    q.kill()

    assert sorted(q.drain()) == sorted(set(ids) - set(done))
    q.enqueue()
    q.store.close()


def test_an_index_that_names_as_running_what_is_not(tmp_path: Path) -> None:
    q = QueueDriver(sqlite_opener(tmp_path))
    ids = [q.enqueue() for _ in range(10)]
    q.store.tidy()
    q.store.close()
    path = tmp_path / "queue.db"
    data = bytearray(path.read_bytes())
    (running,) = _pages(path, "name = 'task_running'")
    (key,) = _pages(path, "name = 'sqlite_autoindex_recurring_1'")
    assert data[(key - 1) * PAGE_BYTES] == 10
    page = bytearray(PAGE_BYTES)  # one entry: the row 5, twice in a record
    page[0:8] = bytes([10, 0, 0, 0, 2, 0, 0, 0])
    for number in range(2):
        at = PAGE_BYTES - 10 * (number + 1)
        page[at : at + 4] = bytes([3, 2, 1, 5])
        page[8 + 2 * number : 10 + 2 * number] = at.to_bytes(2, "big")
    page[5:7] = (PAGE_BYTES - 20).to_bytes(2, "big")
    data[(running - 1) * PAGE_BYTES : running * PAGE_BYTES] = page
    path.write_bytes(data)

    q.kill()

    assert sorted(q.drain()) == sorted(ids)
    q.store.close()


@pytest.mark.parametrize("seed", range(8))
def test_noise_in_the_pointer_map_hides_no_row(tmp_path: Path, seed: int) -> None:
    q, path, ids = _whole(tmp_path)
    data = bytearray(path.read_bytes())
    data[PAGE_BYTES : 2 * PAGE_BYTES] = random.Random(seed).randbytes(PAGE_BYTES)
    path.write_bytes(data)

    q.kill()
    damage_now(q)
    finish_salvage(q)

    assert sorted(q.drain()) == sorted(ids)
    q.store.close()


@pytest.mark.parametrize("table", ["task", "body"])
def test_a_row_whose_number_was_hit_takes_no_other_row_s_place(tmp_path: Path, table: str) -> None:
    q, path, ids = _whole(tmp_path)
    data = bytearray(path.read_bytes())
    page = _pages(path, f"name = '{table}' AND pagetype = 'leaf'")[5]
    start = (page - 1) * PAGE_BYTES
    cell = start + int.from_bytes(data[start + 8 + 4 : start + 8 + 6], "big")  # the third row
    at = cell + (1 if data[cell] < 0x80 else 2)
    assert 20 < data[at] < 0x80
    hit = data[at]
    data[at] ^= 0x10  # another page's row
    other = data[at]
    path.write_bytes(data)

    q.kill()
    assert isinstance(q.store, SqliteStore)
    check_whole(q.store, path)
    finish_salvage(q)

    ran = q.drain()
    assert set(ids) - set(ran) == {ids[hit - 1]}, (hit, other, [ids.index(i) + 1 for i in set(ids) - set(ran)])
    q.store.close()
