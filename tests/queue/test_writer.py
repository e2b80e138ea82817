"""The writer: what waits is committed together, answered after the commit, and fails for itself alone."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from skerry.errors import QueueError, StorageFailed
from skerry.ids import TaskId, TaskIdSource
from skerry.messages import Lane
from skerry.testing import ManualClock, a_task
from task_queue.memory_store import MemoryStore
from task_queue.operations import Advance, Enqueue, Enqueued, PutMeta, TrimOutbox
from task_queue.sqlite_store import SqliteStore
from task_queue.store import Store, TaskFilter
from task_queue.testing import ROOMY, check_invariants
from task_queue.writer import StoreWriter
from tests.queue.gated import GatedStore, hold_first

TRIM = TrimOutbox(lane=Lane.LIVE, upto=1)


def test_what_waits_is_committed_together_and_each_gets_its_own_answers(
    gated: GatedStore, writer: StoreWriter, clock: ManualClock
) -> None:
    ids = TaskIdSource(clock.wall_s)
    hold_first(gated, writer)
    wanted = [[ids.next(), ids.next()] for _ in range(5)]

    futures = [writer.submit([Enqueue(task_id=i, task=a_task()) for i in pair]) for pair in wanted]
    early = [future.done() for future in futures]
    gated.gate.set()
    answers = [future.result(30) for future in futures]

    assert not any(early)
    assert answers == [[Enqueued(task_id=i) for i in pair] for pair in wanted]
    assert gated.commits == [1, 10]


def test_a_failing_submission_fails_alone(gated: GatedStore, writer: StoreWriter) -> None:
    hold_first(gated, writer)
    good = [writer.submit([PutMeta(name=f"n{n}", value=n)]) for n in range(3)]
    bad = writer.submit([PutMeta(name="poison", value=0)])
    last = writer.submit([PutMeta(name="last", value=9)])

    gated.gate.set()

    with pytest.raises(StorageFailed, match="cannot be written"):
        bad.result(30)
    assert [len(future.result(30)) for future in [*good, last]] == [1] * 4
    assert gated.meta("last") == 9


def test_a_commit_is_bounded_but_a_large_submission_stays_whole(
    gated: GatedStore, writer: StoreWriter
) -> None:
    hold_first(gated, writer)
    sizes = [600, 600, 1500, 1]

    futures = [writer.submit([PutMeta(name="n", value=0)] * size) for size in sizes]
    gated.gate.set()

    assert [len(future.result(30)) for future in futures] == sizes
    assert gated.commits == [1, 600, 600, 1500, 1]


def test_a_submission_cancelled_before_its_commit_is_not_written(
    gated: GatedStore, writer: StoreWriter
) -> None:
    hold_first(gated, writer)
    future = writer.submit([PutMeta(name="n", value=1)])

    cancelled = future.cancel()
    gated.gate.set()
    writer.close()

    assert cancelled
    assert gated.meta("n") is None


def test_closing_commits_what_waits_and_accepts_nothing_more(gated: GatedStore, writer: StoreWriter) -> None:
    hold_first(gated, writer)
    futures = [writer.submit([PutMeta(name=f"n{n}", value=n)]) for n in range(10)]
    gated.gate.set()

    writer.close()
    writer.close()

    assert all(future.done() for future in futures)
    assert gated.meta("n9") == 9
    with pytest.raises(QueueError, match="closing"):
        writer.submit([Advance()])


def test_reads_do_not_wait_for_a_commit_in_progress(gated: GatedStore, writer: StoreWriter) -> None:
    hold_first(gated, writer)

    session = writer.read(lambda store: store.session).result(30)

    assert session == 1
    assert gated.commits == []


def test_commits_can_be_awaited(gated: GatedStore, writer: StoreWriter, clock: ManualClock) -> None:
    gated.gate.set()
    task_id = TaskIdSource(clock.wall_s).next()

    answers = asyncio.run(writer.commit([Enqueue(task_id=task_id, task=a_task())]))

    assert answers == [Enqueued(task_id=task_id)]


def test_many_producers_and_readers_meet_no_lock_error_and_lose_nothing(
    tmp_path: Path, clock: ManualClock
) -> None:
    store = SqliteStore.open(tmp_path / "queue.db", now=clock.now(), wall_s=clock.wall_s, limits=ROOMY)
    writer = StoreWriter(store, clock)
    stop = threading.Event()

    def produce(number: int) -> list[TaskId]:
        # Far apart in time, so that no two producers can draw the same id.
        ids = TaskIdSource(clock.wall_s, floor_ms=number << 32)
        accepted = []
        for _ in range(20):
            (answer,) = writer.submit([Enqueue(task_id=ids.next(), task=a_task())]).result(60)
            assert isinstance(answer, Enqueued)
            accepted.append(answer.task_id)
        return accepted

    def look() -> int:
        looks = 0
        while not stop.is_set():
            _read_everything(store)
            looks += 1
        return looks

    with ThreadPoolExecutor(35) as pool:
        looking = [pool.submit(look) for _ in range(3)]
        producing = [pool.submit(produce, number) for number in range(32)]
        accepted = [task_id for future in producing for task_id in future.result(90)]
        stop.set()
        looks = [future.result(30) for future in looking]
    writer.close()

    assert len(set(accepted)) == 640
    assert all(store.get(task_id) is not None for task_id in accepted)
    assert min(looks) > 0
    check_invariants(store)
    store.close()


def _read_everything(store: Store) -> None:
    assert len(store.find(TaskFilter(limit=20))) <= 20
    assert store.depth().bytes_used > 0


# What an event loop hands over


def test_a_trim_goes_with_the_next_commit_instead_of_holding_it_up(
    gated: GatedStore, writer: StoreWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("task_queue.writer.COMPANY_S", 300.0)
    gated.gate.set()

    trims = [writer.submit([TRIM]), writer.submit([TRIM])]
    other = writer.submit([Advance()])

    assert all(each.result(30) for each in (*trims, other))
    assert gated.commits == [3]


def test_a_trim_without_company_goes_alone(
    gated: GatedStore, writer: StoreWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("task_queue.writer.COMPANY_S", 0.01)
    gated.gate.set()

    writer.submit([TRIM]).result(30)

    assert gated.commits == [1]


def test_a_trim_that_waits_is_committed_when_the_writer_closes(
    gated: GatedStore, writer: StoreWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("task_queue.writer.COMPANY_S", 300.0)
    gated.gate.set()
    trim = writer.submit([TRIM])

    writer.close()

    assert trim.result(0)
    assert gated.commits == [1]


def test_a_thread_that_breaks_refuses_what_waits_and_what_comes_and_says_so(
    clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = MemoryStore(now=clock.now(), wall_s=clock.wall_s, limits=ROOMY)
    began, may_break = threading.Event(), threading.Event()

    def break_down() -> bool:
        began.set()
        may_break.wait(30)
        raise RuntimeError("nobody thought of this")

    monkeypatch.setattr(store, "tidy", break_down)
    monkeypatch.setattr("task_queue.writer.TIDY_AFTER_S", 0.01)
    writer = StoreWriter(store, clock)
    assert began.wait(30)
    waiting = writer.submit([Advance()])
    may_break.set()

    with pytest.raises(QueueError, match="ended"):
        waiting.result(30)
    assert isinstance(writer.broken.exception(30), RuntimeError)
    with pytest.raises(QueueError):
        writer.submit([Advance()])
    writer.close()
