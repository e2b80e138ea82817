"""A damaged file never stops the queue: it is set aside, what can be read goes on, nothing is done twice.

The large counts are those of `python -m tests.chaos.broken_files`.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path

import apsw
import pytest

from skerry.errors import StoreDamaged
from skerry.messages import Lane
from task_queue.damage.page_size import PAGE_BYTES
from task_queue.damage.salvage import EPOCHS
from task_queue.operations import TrimOutbox
from task_queue.sqlite_store import SqliteStore
from task_queue.task import State
from task_queue.testing import QueueDriver, check_invariants, sqlite_opener
from task_queue.testing_disk import integrity
from task_queue.writer import StoreWriter
from tests.queue.broken_queue import (
    Whole,
    a_whole_queue,
    broken_copy,
    check_after_cut,
    check_what_comes_back,
    check_whole,
)


@pytest.fixture(scope="module")
def in_log(tmp_path_factory: pytest.TempPathFactory) -> Whole:
    """A queue of which half is in the write-ahead log."""
    return a_whole_queue(tmp_path_factory.mktemp("whole") / "queue", rounds=3)


@pytest.fixture(scope="module")
def in_file(tmp_path_factory: pytest.TempPathFactory) -> Whole:
    """A queue that is all in its file."""
    return a_whole_queue(tmp_path_factory.mktemp("whole") / "queue", is_in_log=False, rounds=4)


@pytest.mark.parametrize("seed", range(3))
def test_flipped_bits_in_the_file_lose_only_what_they_hit(in_file: Whole, tmp_path: Path, seed: int) -> None:
    _flip(in_file, tmp_path, seed, "", times=10)


@pytest.mark.parametrize("seed", range(3))
def test_flipped_bits_in_the_log_lose_only_what_they_hit(in_log: Whole, tmp_path: Path, seed: int) -> None:
    _flip(in_log, tmp_path, seed, "-wal", times=5)


def _flip(whole: Whole, folder: Path, seed: int, part: str, *, times: int) -> None:
    draw = random.Random(seed)
    for _ in range(times):
        path = broken_copy(whole, folder / "copy")
        broken = path.with_name(path.name + part)
        data = bytearray(broken.read_bytes())
        offset, bit = draw.randrange(len(data)), draw.randrange(8)
        data[offset] ^= 1 << bit
        broken.write_bytes(data)
        print(f"bit {bit} of byte {offset} of {broken.name}")  # shown when it fails
        check_what_comes_back(whole, folder / "copy", whole.pages_hit(part, offset))


@pytest.mark.parametrize("part", ["", "-wal"], ids=["file", "log"])
def test_a_file_or_a_log_that_is_cut_short_loses_only_what_is_gone(
    in_log: Whole, tmp_path: Path, part: str
) -> None:
    size = (in_log.folder / f"queue.db{part}").stat().st_size
    for cut in sorted({*range(0, size, size // 14 // 512 * 512 + 512), size - 1}):
        path = broken_copy(in_log, tmp_path / "copy")
        os.truncate(path.with_name(path.name + part), cut)
        print(f"cut at {cut}")  # shown when it fails
        check_after_cut(in_log, tmp_path / "copy", part, cut)


def _no_log(path: Path) -> None:
    path.with_name(path.name + "-wal").unlink(missing_ok=True)


def _no_file(path: Path) -> None:
    path.unlink()


def _empty(path: Path) -> None:
    os.truncate(path, 0)


def _zeros(path: Path) -> None:
    path.write_bytes(bytes(path.stat().st_size))


def _zeros_in_front(path: Path) -> None:
    with path.open("r+b") as file:
        file.write(bytes(4096))


def _noise(path: Path) -> None:
    path.write_bytes(random.Random(1).randbytes(path.stat().st_size))


@pytest.mark.parametrize("breaks", [_no_file, _empty, _zeros, _zeros_in_front, _noise])
def test_whatever_became_of_the_file_the_queue_starts_and_keeps_what_its_log_has(
    in_log: Whole, tmp_path: Path, breaks: Callable[[Path], None]
) -> None:
    breaks(broken_copy(in_log, tmp_path / "copy"))

    check_what_comes_back(in_log, tmp_path / "copy", set(range(1, 1000)) - set(in_log.frames))


@pytest.mark.parametrize("breaks", [_no_file, _empty, _zeros, _noise])
def test_a_file_of_which_nothing_is_left_is_begun_anew(
    in_file: Whole, tmp_path: Path, breaks: Callable[[Path], None]
) -> None:
    breaks(broken_copy(in_file, tmp_path / "copy"))

    q = QueueDriver(sqlite_opener(tmp_path / "copy"))
    task_id = q.enqueue()

    assert q.drain() == [task_id]
    assert q.store.epoch != in_file.epoch
    check_invariants(q.store)
    q.store.close()


def test_a_missing_log_is_an_older_state_of_the_file(in_log: Whole, tmp_path: Path) -> None:
    path = broken_copy(in_log, tmp_path / "copy")
    _no_log(path)

    q = QueueDriver(sqlite_opener(path.parent))
    q.drain()

    check_invariants(q.store)
    q.store.close()
    assert integrity(path) == ["ok"]


def test_the_first_page_is_not_needed_to_bring_everything_back(tmp_path: Path) -> None:
    q = QueueDriver(sqlite_opener(tmp_path))
    done = [q.enqueue() for _ in range(40)]
    q.drain()
    ready = [q.enqueue(argv=("echo", "x" * (50 if n % 10 else 9000))) for n in range(40)]
    epoch = q.store.epoch
    q.store.close()
    with (tmp_path / "queue.db").open("r+b") as file:
        file.write(bytes(PAGE_BYTES))

    q.kill()

    assert [q.state(task_id) for task_id in done] == [State.DONE] * 40
    assert q.store.epoch != epoch
    assert q.store.meta(EPOCHS) == [epoch]
    assert q.drain() == ready
    check_invariants(q.store)
    q.store.close()


# --- while it is open


def test_damage_that_a_read_meets_is_dealt_with_and_the_read_is_answered(tmp_path: Path) -> None:
    q = QueueDriver(sqlite_opener(tmp_path))
    ids = [q.enqueue() for _ in range(400)]
    q.store.tidy()
    _spoil_a_leaf(tmp_path / "queue.db", "task", q)
    writer = StoreWriter(q.store, q.clock)
    before = q.store.epoch

    found = [writer.read(lambda store, i=task_id: store.get(i)).result() for task_id in ids]  # type: ignore[misc]
    writer.close()

    assert q.store.epoch != before
    assert len([record for record in found if record is not None]) == len(ids), "a mark is kept at least"
    check_invariants(q.store)
    q.store.close()


def _spoil_a_leaf(path: Path, table: str, q: QueueDriver) -> None:
    """Write nonsense into the middle of a table, behind the back of the open store."""
    assert isinstance(q.store, SqliteStore)
    db = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    sql = "SELECT pageno FROM dbstat WHERE name = ? AND pagetype = 'leaf' ORDER BY path"
    pages = [number for (number,) in db.execute(sql, (table,))]
    db.close()
    with path.open("r+b") as file:
        file.seek((pages[len(pages) // 2] - 1) * PAGE_BYTES)
        file.write(b"\xff" * PAGE_BYTES)


def test_damage_that_a_commit_meets_does_not_fail_it(tmp_path: Path) -> None:
    q = QueueDriver(sqlite_opener(tmp_path))
    ids = [q.enqueue() for _ in range(300)]
    q.store.close()
    q.kill()  # an empty page cache
    _spoil_a_leaf(tmp_path / "queue.db", "body", q)

    ran = q.drain()

    assert q.store.salvaged is not None
    lost = set(ids) - set(ran)
    assert 0 < len(lost) < 25  # what a leaf holds
    assert {q.state(task_id) for task_id in lost} == {State.DEAD}, "whose document is lost cannot run"
    check_invariants(q.store)
    q.store.close()


def test_the_check_in_the_background_finds_what_nothing_has_read(tmp_path: Path) -> None:
    q = QueueDriver(sqlite_opener(tmp_path))
    ids = [q.enqueue() for _ in range(500)]
    q.store.tidy()
    q.kill()
    _spoil_a_leaf(tmp_path / "queue.db", "sqlite_autoindex_task_1", q)
    assert isinstance(q.store, SqliteStore)
    before = q.store.epoch

    check_whole(q.store, tmp_path / "queue.db")

    assert q.store.epoch != before
    assert q.store.salvaged is not None
    assert q.store.salvaged.rows_lost == 0
    assert q.drain() == ids
    q.store.close()


def test_an_attempt_that_runs_goes_on_through_the_change_of_files(tmp_path: Path) -> None:
    q = QueueDriver(sqlite_opener(tmp_path))
    task_id, fence = q.run()
    (claimed,) = (q.enqueue(), *q.claim())[1:]
    assert isinstance(q.store, SqliteStore)

    q.store.suspect(StoreDamaged("seen elsewhere"))
    q.finish(task_id, fence)
    q.finish(claimed, q.start(claimed))

    assert (q.state(task_id), q.state(claimed)) == (State.DONE, State.DONE)
    check_invariants(q.store)
    q.store.close()


def test_a_word_of_the_old_store_s_numbers_trims_nothing_of_the_new_one(tmp_path: Path) -> None:
    q = QueueDriver(sqlite_opener(tmp_path))
    for _ in range(5):
        q.finish(*q.run())
    q.one(TrimOutbox(lane=Lane.BACKLOG, upto=2))
    old = q.store.epoch
    assert isinstance(q.store, SqliteStore)

    q.store.suspect(StoreDamaged("seen elsewhere"))
    q.one(TrimOutbox(lane=Lane.BACKLOG, upto=4, epoch=old))

    rows = q.store.outbox(Lane.BACKLOG, 0, limit=10, limit_bytes=1 << 20)
    assert [row.seq for row in rows] == [1, 2, 3], "three were not acknowledged, and are numbered anew"
    assert q.kinds(Lane.CONTROL) == ["store.salvaged"]
    q.store.close()


def test_a_file_that_is_damaged_again_at_once_is_not_tried_again_and_again(tmp_path: Path) -> None:
    q = QueueDriver(sqlite_opener(tmp_path))
    store = q.store
    assert isinstance(store, SqliteStore)
    store.suspect(StoreDamaged("once"))
    q.enqueue()
    store.suspect(StoreDamaged("twice"))

    with pytest.raises(StoreDamaged, match="twice"):
        q.enqueue()
    q.clock.advance(60.0)
    q.enqueue()

    assert len(list((tmp_path / "quarantine").iterdir())) == 2
    store.close()
