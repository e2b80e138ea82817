"""A file system without a free byte, for real: who still gets through, and that it heals by itself."""

from __future__ import annotations

import multiprocessing
import os
import random
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import apsw
import pytest

from skerry.errors import StorageFailed, StoreDamaged
from skerry.ids import TaskId
from skerry.messages import Lane
from skerry.testing import ManualClock, a_task
from task_queue.damage.page_size import PAGE_BYTES
from task_queue.limits import MIB, Limits
from task_queue.operations import (
    Advance,
    Appended,
    AppendOutbox,
    Dropped,
    Enqueue,
    Enqueued,
    Refused,
    TrimOutbox,
)
from task_queue.retention import RowClass
from task_queue.sqlite_store import SqliteStore
from task_queue.task import State
from task_queue.testing import QueueDriver, check_invariants, sqlite_opener
from task_queue.testing_disk import NoLoopDevice, fill, integrity, small_disk
from task_queue.watermarks import Level
from tests.queue.old_schemas import TASKS, task_id_of, write_old

LIMITS = Limits(ballast_bytes=2 * MIB, control_ballast_bytes=1 * MIB, free_floor_bytes=1 * MIB)
TELEMETRY = "decision.recorded"


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 16 MiB of its own."""
    try:
        with small_disk(tmp_path) as mount:
            yield mount
    except NoLoopDevice as error:
        pytest.skip(str(error))


def control(q: QueueDriver, size: int = 300) -> Appended:
    answer = q.one(AppendOutbox(lane=Lane.CONTROL, kind="task.withdrawn", body=b"1" * size))
    assert isinstance(answer, Appended)
    return answer


def submit(q: QueueDriver, priority: int = 9) -> object:
    return q.one(Enqueue(task_id=q.ids.next(), task=a_task(priority=priority)))


def rows_in(q: QueueDriver, lane: Lane) -> int:
    return len(q.store.outbox(lane, 0, limit=1 << 20, limit_bytes=1 << 40))


def test_disk_full_control_is_accepted_telemetry_is_counted_producers_are_told_when_to_come_again(
    disk: Path,
) -> None:
    q = QueueDriver(sqlite_opener(disk), limits=LIMITS)
    accepted = [q.enqueue() for _ in range(20)]
    stuffing = fill(disk)

    refused = submit(q)
    dropped = [q.one(AppendOutbox(lane=Lane.BACKLOG, kind=TELEMETRY, body=b"1" * 100)) for _ in range(30)]
    numbers = [control(q).seq for _ in range(200)]
    q.drain()
    during = q.store.depth()
    stuffing.unlink()
    healed = submit(q, priority=0)

    assert isinstance(refused, Refused)
    assert refused.retry_after_s
    assert "delete something there" in refused.message
    assert dropped == [Dropped()] * 30
    assert numbers == list(range(numbers[0], numbers[0] + 200))
    assert during.level is Level.CLOSED
    assert all(q.state(task_id) is State.DONE for task_id in accepted)
    assert isinstance(healed, Enqueued)
    assert [(loss.reason, loss.rows, loss.size_bytes) for loss in q.store.losses()] == [("refused", 30, 3000)]
    assert q.store.depth().level is Level.FREE
    check_invariants(q.store)
    q.store.close()
    assert integrity(disk / "queue.db") == ["ok"]
    assert (disk / "queue.db.ballast").stat().st_size == LIMITS.ballast_bytes
    assert (disk / "queue.db.reserve").stat().st_size == LIMITS.control_ballast_bytes


def test_disk_full_what_reports_have_used_up_leaves_room_for_control(disk: Path) -> None:
    q = QueueDriver(sqlite_opener(disk), limits=LIMITS)
    running, fence = q.run()
    stuffing = fill(disk)
    kept = 0
    with pytest.raises(StorageFailed):  # noqa: PT012 - the one that fails is not known beforehand
        for _ in range(1000):
            q.one(AppendOutbox(lane=Lane.LIVE, kind="task.ended", body=b"1" * 30_000))
            kept += 1

    before = rows_in(q, Lane.CONTROL)
    for _ in range(100):
        control(q)
    with pytest.raises(StorageFailed, match="full"):
        q.one(AppendOutbox(lane=Lane.LIVE, kind="task.ended", body=b"1" * 30_000))
    q.one(TrimOutbox(lane=Lane.LIVE, upto=kept // 2))
    q.kill()
    after_a_restart = control(q)
    stuffing.unlink()

    assert kept > 10, "the first part of the ballast is for them"
    assert rows_in(q, Lane.CONTROL) == before + 101
    assert after_a_restart.seq == before + 101
    assert rows_in(q, Lane.LIVE) == kept - kept // 2
    assert q.state(running) is State.READY, "the restart interrupted it"
    assert fence is not None
    assert isinstance(submit(q), Enqueued)
    check_invariants(q.store)
    q.store.close()
    assert integrity(disk / "queue.db") == ["ok"]


def test_disk_full_evicting_telemetry_makes_room_inside_the_file(disk: Path) -> None:
    q = QueueDriver(sqlite_opener(disk), limits=LIMITS)
    for _ in range(40):
        q.apply(*(AppendOutbox(lane=Lane.BACKLOG, kind=TELEMETRY, body=b"1" * 1000) for _ in range(100)))
    fill(disk)

    for _ in range(10):
        q.one(Advance())
    left = rows_in(q, Lane.BACKLOG)
    control(q)

    usage = q.store.usage()
    assert {loss.reason: loss.rows for loss in q.store.losses()} == {"evicted": 4000 - left}
    assert 4000 - left > 0
    assert usage.file_bytes - usage.used_bytes > MIB // 2
    assert q.store.depth().by_class[RowClass.TELEMETRY].rows == left
    check_invariants(q.store)
    q.store.close()


@pytest.mark.parametrize("leave_bytes", [50 * 1024, 58 * 1024])
def test_disk_full_while_the_index_of_a_long_log_grows_fails_commits_and_not_the_process(
    disk: Path, leave_bytes: int
) -> None:
    # In a child: the file system has blocks of 1 KiB, and a write into a hole of the index would end it.
    child = multiprocessing.get_context("fork").Process(
        target=_fill_behind_a_long_log, args=(disk, leave_bytes)
    )
    child.start()
    child.join()
    assert child.exitcode == 0
    acknowledged = int((disk.parent / "acknowledged").read_text())

    (disk / "stuffing").unlink()
    q = QueueDriver(sqlite_opener(disk), limits=LIMITS)

    assert rows_in(q, Lane.CONTROL) == acknowledged
    q.store.close()
    assert integrity(disk / "queue.db") == ["ok"]


def _fill_behind_a_long_log(disk: Path, leave_bytes: int) -> None:
    """Fill the disk just before a log that a reader needs grows beyond the first part of its index."""
    no_ballast = Limits(ballast_bytes=0, control_ballast_bytes=0, free_floor_bytes=0, max_bytes=64 * MIB)
    q, acknowledged = QueueDriver(sqlite_opener(disk), limits=no_ballast), 0
    reader = apsw.Connection(str(disk / "queue.db"), flags=apsw.SQLITE_OPEN_READONLY)
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM task").fetchall()
    for size, frames in ((30_000, 3950), (300, 4030)):
        while (disk / "queue.db-wal").stat().st_size < frames * (PAGE_BYTES + 24):
            acknowledged = control(q, size).seq
    fill(disk, leave_bytes=leave_bytes)
    with suppress(StorageFailed):
        while True:
            acknowledged = control(q).seq
    (disk.parent / "acknowledged").write_text(str(acknowledged))
    os._exit(0)  # as a kill: nothing is closed in order


@pytest.mark.parametrize("seed", range(4))
def test_disk_full_again_and_again_nothing_acknowledged_is_lost_and_counts_are_exact(
    disk: Path, seed: int
) -> None:
    rng = random.Random(seed)
    q = QueueDriver(sqlite_opener(disk), limits=LIMITS)
    accepted: list[TaskId] = []
    live = dropped = 0
    for step in range(50):
        what = rng.random()
        if what < 0.15:
            fill(disk, leave_bytes=rng.choice((0, 0, 100_000, 3 * MIB)))
        elif what < 0.3:
            (disk / "stuffing").unlink(missing_ok=True)
        elif what < 0.35:
            q.kill()
        q.clock.advance(1)
        try:
            answer = submit(q, priority=rng.randrange(10))
            accepted += [answer.task_id] if isinstance(answer, Enqueued) else []
            live += isinstance(
                q.one(AppendOutbox(lane=Lane.LIVE, kind="task.ended", body=b"1" * rng.randrange(20_000))),
                Appended,
            )
            telemetry = AppendOutbox(lane=Lane.BACKLOG, kind=TELEMETRY, body=b"1")
            dropped += sum(answer == Dropped() for answer in q.apply(*[telemetry] * 10))
            if step % 5 == 0:
                q.one(Advance())
        except StorageFailed:
            pass  # whole commits only: what was counted above was acknowledged

    (disk / "stuffing").unlink(missing_ok=True)
    q.kill()

    assert rows_in(q, Lane.LIVE) == live
    assert all(q.store.get(task_id) is not None for task_id in accepted)
    lost = {(loss.lost_class, loss.reason): loss.rows for loss in q.store.losses()}
    assert (
        lost.get((RowClass.TELEMETRY, "refused"), 0) + lost.get((RowClass.TELEMETRY, "sampled"), 0) == dropped
    )
    check_invariants(q.store)
    q.store.close()
    assert integrity(disk / "queue.db") == ["ok"]


def test_disk_full_a_salvage_gives_up_old_copies_and_not_the_one_it_reads(disk: Path) -> None:
    no_ballast = Limits(ballast_bytes=0, control_ballast_bytes=0, free_floor_bytes=0, max_bytes=64 * MIB)
    q = QueueDriver(sqlite_opener(disk), limits=no_ballast)
    ids = [q.ids.next() for _ in range(500)]
    q.apply(*(Enqueue(task_id=task_id, task=a_task(argv=("echo", "x" * 5000))) for task_id in ids))
    q.store.tidy()
    for number in (1, 2, 3):
        copy = disk / "quarantine" / f"{number:06d}-20260101T000000Z"
        copy.mkdir(parents=True)
        (copy / "queue.db").write_bytes(bytes(2 * MIB))
    stuffing = fill(disk, leave_bytes=MIB)

    assert isinstance(q.store, SqliteStore)
    q.store.suspect(StoreDamaged("found by the test"))
    with suppress(StorageFailed):  # once everything is brought over, the log cannot be emptied
        while True:
            q.store.tidy()
    assert q.store.salvaged is not None
    assert q.store.salvaged.rows_kept == 2 * len(ids), "tasks and their bodies, while the disk is full"
    stuffing.unlink()
    assert not q.store.tidy()

    assert [q.state(task_id) for task_id in ids] == [State.READY] * len(ids)
    assert q.store.salvaged.rows_lost == 0
    kept = sorted(path.name[:6] for path in (disk / "quarantine").iterdir())
    assert "000001" not in kept
    assert {"000003", "000004"} <= set(kept), "more were given up than room was needed for"
    check_invariants(q.store)
    q.store.close()
    assert integrity(disk / "queue.db") == ["ok"]


@pytest.mark.parametrize("leave_bytes", [0, 24 * 1024, 400 * 1024])
def test_disk_full_an_upgrade_is_made_later_and_says_what_is_wrong(disk: Path, leave_bytes: int) -> None:
    path, clock = disk / "queue.db", ManualClock()
    write_old(path, 2)
    db = apsw.Connection(str(path))
    with db:  # enough of it that the upgrade does not fit
        db.execute("UPDATE task SET body = CAST(json_set(body, '$.spec.stdin', ?) AS BLOB)", ("x" * 30_000,))
    db.close()
    stuffing = fill(disk, leave_bytes=leave_bytes)

    with pytest.raises(StorageFailed, match="full; free some space"):
        SqliteStore.open(path, now=clock.now(), wall_s=clock.wall_s, limits=LIMITS)
    stuffing.unlink()
    store = SqliteStore.open(path, now=clock.now(), wall_s=clock.wall_s, limits=LIMITS)

    assert all(store.get(task_id_of(seq)) is not None for seq, _, _ in TASKS)
    store.close()
    assert integrity(path) == ["ok"]
