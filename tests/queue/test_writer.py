"""The writer: what waits is committed together, answered after the commit, and fails for itself alone."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from skerry.clock import Instant
from skerry.errors import QueueError, StorageFailed
from skerry.ids import TaskId, TaskIdSource
from skerry.messages import Lane
from skerry.testing import ManualClock, a_task
from task_queue.mailbox import Letter, Mailbox
from task_queue.memory_store import MemoryStore
from task_queue.operations import Advance, Answer, Enqueue, Enqueued, Operation, PutMeta, TrimOutbox
from task_queue.sqlite_store import SqliteStore
from task_queue.store import Store, TaskFilter
from task_queue.testing import ROOMY, check_invariants
from task_queue.writer import StoreWriter


class GatedStore(MemoryStore):
    """A store whose commits wait for a gate, and are listed by the number of operations in each."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(now=clock.now(), wall_s=clock.wall_s, limits=ROOMY)
        self.gate = threading.Event()
        self.entered = threading.Event()
        self.commits: list[int] = []

    def apply(self, operations: Sequence[Operation], *, now: Instant) -> list[Answer]:
        self.entered.set()
        assert self.gate.wait(30)
        if any(isinstance(op, PutMeta) and op.name == "poison" for op in operations):
            raise StorageFailed("this one cannot be written")
        self.commits.append(len(operations))
        return super().apply(operations, now=now)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def gated(clock: ManualClock) -> GatedStore:
    return GatedStore(clock)


@pytest.fixture
def writer(gated: GatedStore, clock: ManualClock) -> Iterator[StoreWriter]:
    writer = StoreWriter(gated, clock)
    yield writer
    gated.gate.set()
    writer.close()


def hold_first(gated: GatedStore, writer: StoreWriter) -> None:
    """Submit one commit and wait until the writer is inside it: what follows must wait."""
    writer.submit([Advance()])
    assert gated.entered.wait(30)


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


async def held(gated: GatedStore, writer: StoreWriter) -> None:
    """See hold_first, on an event loop."""
    await asyncio.to_thread(hold_first, gated, writer)


def test_waiters_that_were_answered_together_are_committed_together_again(
    gated: GatedStore, writer: StoreWriter, clock: ManualClock
) -> None:
    ids = TaskIdSource(clock.wall_s)

    async def submit_twice() -> None:
        for _ in range(2):
            await writer.commit([Enqueue(task_id=ids.next(), task=a_task())])

    async def all_of_them() -> None:
        await held(gated, writer)
        waiters = [asyncio.ensure_future(submit_twice()) for _ in range(64)]
        await asyncio.sleep(0)
        gated.gate.set()
        await asyncio.gather(*waiters)

    asyncio.run(all_of_them())

    assert gated.commits == [1, 64, 64]


def test_all_answers_of_a_commit_come_to_a_mailbox_in_one_hop_and_in_order(
    gated: GatedStore, writer: StoreWriter
) -> None:
    async def hand_over() -> list[list[Letter[int]]]:
        hops: list[list[Letter[int]]] = []
        came = asyncio.Event()

        def deliver(letters: list[Letter[int]]) -> None:
            hops.append(letters)
            came.set()

        mailbox = Mailbox(deliver)
        await held(gated, writer)
        for number in range(10):
            writer.hand_over([PutMeta(name=f"n{number}", value=number)], mailbox, number)
        gated.gate.set()
        await asyncio.wait_for(came.wait(), 30)
        return hops

    (letters,) = asyncio.run(hand_over())

    assert [letter.tag for letter in letters] == list(range(10))
    assert all(letter.answers is not None and len(letter.answers) == 1 for letter in letters)
    assert gated.commits == [1, 10]


def test_an_awaited_commit_that_fails_fails_for_itself_alone(gated: GatedStore, writer: StoreWriter) -> None:
    async def commit_all() -> list[object]:
        await held(gated, writer)
        names = ["a", "poison", "b"]
        waiting = [asyncio.ensure_future(writer.commit([PutMeta(name=n, value=1)])) for n in names]
        await asyncio.sleep(0)
        gated.gate.set()
        return list(await asyncio.gather(*waiting, return_exceptions=True))

    first, second, third = asyncio.run(commit_all())

    assert isinstance(second, StorageFailed)
    assert isinstance(first, list)
    assert isinstance(third, list)
    assert (gated.meta("a"), gated.meta("poison"), gated.meta("b")) == (1, None, 1)


def test_an_awaited_commit_that_is_cancelled_before_it_begins_is_not_written(
    gated: GatedStore, writer: StoreWriter
) -> None:
    async def commit_and_cancel() -> None:
        await held(gated, writer)
        kept = asyncio.ensure_future(writer.commit([PutMeta(name="kept", value=1)]))
        dropped = asyncio.ensure_future(writer.commit([PutMeta(name="dropped", value=1)]))
        await asyncio.sleep(0)
        dropped.cancel()
        await asyncio.sleep(0)
        gated.gate.set()
        await kept
        with pytest.raises(asyncio.CancelledError):
            await dropped

    asyncio.run(commit_and_cancel())

    assert (gated.meta("kept"), gated.meta("dropped")) == (1, None)


def test_a_waiter_that_leaves_during_its_commit_disturbs_no_other(
    gated: GatedStore, writer: StoreWriter
) -> None:
    async def leave() -> list[Answer]:
        leaving = asyncio.ensure_future(writer.commit([PutMeta(name="n", value=1)]))
        assert await asyncio.to_thread(gated.entered.wait, 30)
        leaving.cancel()
        gated.gate.set()
        return await writer.commit([PutMeta(name="other", value=2)])

    answers = asyncio.run(leave())

    assert len(answers) == 1
    assert (gated.meta("n"), gated.meta("other")) == (1, 2)  # it was on its way: it stands


def test_an_event_loop_that_has_ended_does_not_end_the_writer(gated: GatedStore, writer: StoreWriter) -> None:
    async def hand_over_and_leave() -> None:
        mailbox = Mailbox[int](lambda letters: None)
        writer.hand_over([PutMeta(name="n", value=1)], mailbox, 0)
        assert await asyncio.to_thread(gated.entered.wait, 30)

    asyncio.run(hand_over_and_leave())
    gated.gate.set()
    later = writer.submit([PutMeta(name="later", value=2)])

    assert later.result(30)
    assert (gated.meta("n"), gated.meta("later")) == (1, 2)


def test_several_event_loops_share_one_writer(gated: GatedStore, writer: StoreWriter) -> None:
    gated.gate.set()

    async def commit_some(name: str) -> int:
        answers = [await writer.commit([PutMeta(name=name, value=n)]) for n in range(20)]
        return len(answers)

    with ThreadPoolExecutor(4) as pool:
        counts = list(pool.map(lambda name: asyncio.run(commit_some(name)), "abcd"))

    assert counts == [20] * 4
    assert [gated.meta(name) for name in "abcd"] == [19] * 4


def test_what_an_event_loop_handed_over_is_committed_when_the_writer_closes(
    gated: GatedStore, writer: StoreWriter
) -> None:
    async def hand_over_and_close() -> list[Letter[int]]:
        came: list[Letter[int]] = []
        mailbox = Mailbox[int](came.extend)
        writer.hand_over([PutMeta(name="n", value=1)], mailbox, 7)
        await asyncio.to_thread(writer.close)
        await asyncio.sleep(0)
        with pytest.raises(QueueError, match="closing"):
            writer.hand_over([Advance()], mailbox, 8)
        return came

    gated.gate.set()
    (letter,) = asyncio.run(hand_over_and_close())

    assert letter.tag == 7
    assert gated.meta("n") == 1


# Trims of the outbox

TRIM = TrimOutbox(lane=Lane.LIVE, upto=1)


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
