"""Damage in odd places: none keeps a queue from starting, hides a row, or puts one in another's place."""

from __future__ import annotations

import random
from pathlib import Path

import apsw
import pytest

from skerry.ids import TaskId
from task_queue.damage.page_size import PAGE_BYTES
from task_queue.sqlite_store import SqliteStore
from task_queue.testing import QueueDriver, sqlite_opener
from tests.queue.broken_queue import check_whole, damage_now, finish_salvage


def _stopped(folder: Path, *, done: int = 0) -> tuple[QueueDriver, Path, list[TaskId]]:
    """Return a stopped queue that is all in its file, the file, and its tasks; the first ones are done."""
    q = QueueDriver(sqlite_opener(folder))
    ids = [q.enqueue(idempotency_key=f"k{n}") for n in range(100)]
    for task_id in q.claim(done) if done else ():
        q.finish(task_id, q.start(task_id))
    q.store.tidy()
    q.store.close()
    return q, folder / "queue.db", ids


def _pages(path: Path, where: str) -> list[int]:
    db = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    found = [number for (number,) in db.execute(f"SELECT pageno FROM dbstat WHERE {where} ORDER BY pageno")]
    db.close()
    return found


def _read(path: Path, page: int) -> bytes:
    return path.read_bytes()[(page - 1) * PAGE_BYTES : page * PAGE_BYTES]


def _overwrite(path: Path, page: int, content: bytes) -> None:
    with path.open("r+b") as file:
        file.seek((page - 1) * PAGE_BYTES)
        file.write(content)


@pytest.mark.parametrize("table", ["body", "event", "outbox"])
def test_a_queue_starts_though_a_page_of_another_table_has_the_place_of_the_store_s_own_row(
    tmp_path: Path, table: str
) -> None:
    q, path, ids = _stopped(tmp_path, done=30)
    (store,) = _pages(path, "name = 'store'")
    other = _pages(path, f"name = '{table}' AND pagetype = 'leaf'")[1]
    _overwrite(path, store, _read(path, other))

    q.kill()

    assert sorted(q.drain()) == sorted(ids[30:])
    q.enqueue()
    q.store.close()


def test_a_queue_starts_though_an_index_names_a_task_as_running_that_is_not(tmp_path: Path) -> None:
    q, path, ids = _stopped(tmp_path)
    (running,) = _pages(path, "name = 'task_running'")
    _overwrite(path, running, _index_page_with_row_5_twice())

    q.kill()

    assert sorted(q.drain()) == sorted(ids)
    q.store.close()


def _index_page_with_row_5_twice() -> bytes:
    page = bytearray(PAGE_BYTES)
    page[0:8] = bytes([10, 0, 0, 0, 2, 0, 0, 0])  # a leaf of an index, with two entries
    for number in range(2):
        at = PAGE_BYTES - 10 * (number + 1)
        page[at : at + 4] = bytes([3, 2, 1, 5])
        page[8 + 2 * number : 10 + 2 * number] = at.to_bytes(2, "big")
    page[5:7] = (PAGE_BYTES - 20).to_bytes(2, "big")
    return bytes(page)


@pytest.mark.parametrize("seed", range(8))
def test_noise_in_the_pointer_map_hides_no_row(tmp_path: Path, seed: int) -> None:
    q, path, ids = _stopped(tmp_path)
    _overwrite(path, 2, random.Random(seed).randbytes(PAGE_BYTES))

    q.kill()
    damage_now(q)
    finish_salvage(q)

    assert sorted(q.drain()) == sorted(ids)
    q.store.close()


@pytest.mark.parametrize("table", ["task", "body"])
def test_a_row_whose_number_was_hit_takes_no_other_row_s_place(tmp_path: Path, table: str) -> None:
    q, path, ids = _stopped(tmp_path)
    page = _pages(path, f"name = '{table}' AND pagetype = 'leaf'")[5]
    data = bytearray(_read(path, page))
    cell = int.from_bytes(data[12:14], "big")  # of the third row
    at = cell + (1 if data[cell] < 0x80 else 2)  # behind the row's size
    hit = data[at]
    assert 20 < hit < 0x80
    data[at] ^= 0x10  # now the number of a row in another page
    _overwrite(path, page, bytes(data))

    q.kill()
    assert isinstance(q.store, SqliteStore)
    check_whole(q.store, path)
    finish_salvage(q)

    assert set(ids) - set(q.drain()) == {ids[hit - 1]}
    q.store.close()
