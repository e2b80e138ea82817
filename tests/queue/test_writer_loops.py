"""The writer and event loops: answers in one hop, for each submitter alone, whatever happens meanwhile."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

import pytest

from skerry.errors import QueueError, StorageFailed
from skerry.ids import TaskIdSource
from skerry.messages import Lane
from skerry.testing import ManualClock, a_task
from task_queue.mailbox import Letter, Mailbox
from task_queue.operations import Advance, Answer, Enqueue, PutMeta, TrimOutbox
from task_queue.writer import StoreWriter
from tests.queue.gated import GatedStore, hold_first


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
