"""The store's contract, tasks that go away and come back."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from skerry.fence import Fence
from skerry.ids import TaskId
from skerry.messages import Lane, Outcome, TaskOffered, TaskWithdrawn
from task_queue.operations import (
    Advance,
    Cancel,
    Changed,
    Drop,
    Enqueued,
    HandOver,
    RecordPlacement,
    RefusePlacement,
    Replay,
    Return,
)
from task_queue.task import State
from task_queue.testing import (
    FAILED,
    FIRST,
    SECOND,
    SUCCEEDED,
    QueueDriver,
    a_decision,
    ended_rows,
    place,
    reason_of,
)


def hand_over(q: QueueDriver, **fields: Any) -> TaskId:
    task_id = q.enqueue(**fields)
    q.claim()
    answer = q.one(HandOver(task_id=task_id, reason="no NPU here", decision=a_decision(task_id)))
    assert answer == Changed(task_id=task_id, state=State.HANDED_OVER, was=State.LEASED)
    return task_id


def test_a_handed_over_task_stays_is_offered_and_ends_when_its_end_comes_back(q: QueueDriver) -> None:
    task_id = hand_over(q, kind="detect")
    row = q.store.outbox(Lane.LIVE, 0, limit=1, limit_bytes=1)[0]
    offer = msgspec.json.decode(row.body, type=TaskOffered)
    noted = q.one(
        RecordPlacement(task_id=task_id, fence=FIRST, node="north-1", decision=a_decision(task_id, "idle"))
    )
    placed_on = q.record(task_id).placed_on

    fence = FIRST.with_attempt(2)
    back = q.one(Return(task_id=task_id, fence=fence, outcome=SUCCEEDED))
    again = q.one(Return(task_id=task_id, fence=fence, outcome=FAILED))

    assert (offer.task_id, offer.task.kind, offer.reason) == (task_id, "detect", "no NPU here")
    assert noted == Changed(task_id=task_id, state=State.HANDED_OVER, was=State.HANDED_OVER)
    assert placed_on == "north-1"
    assert back == Changed(task_id=task_id, state=State.DONE, was=State.HANDED_OVER)
    assert again == Changed(task_id=task_id, state=State.DONE, was=State.DONE)
    assert (q.record(task_id).outcome, q.record(task_id).fence) == (SUCCEEDED, fence)
    assert ended_rows(q, Lane.BACKLOG) == [], "the coordinator knows already"


def test_an_end_under_an_older_placement_than_the_one_known_is_fenced(q: QueueDriver) -> None:
    task_id = hand_over(q)
    q.one(RecordPlacement(task_id=task_id, fence=SECOND, node="b", decision=a_decision(task_id)))

    note = q.one(RecordPlacement(task_id=task_id, fence=FIRST, node="a", decision=a_decision(task_id)))
    answer = q.one(Return(task_id=task_id, fence=FIRST.with_attempt(1), outcome=SUCCEEDED))

    assert reason_of(note) == reason_of(answer) == "fenced"
    assert q.state(task_id) is State.HANDED_OVER


def test_why_a_handed_over_task_waits_is_noted(q: QueueDriver) -> None:
    task_id = hand_over(q)

    q.one(
        RecordPlacement(
            task_id=task_id, fence=Fence(), node="", decision=a_decision(task_id, "no NPU is free")
        )
    )

    assert (q.record(task_id).placed_on, q.record(task_id).waiting_for) == ("", "no NPU is free")


@pytest.mark.parametrize(
    ("status", "state"),
    [
        ("succeeded", State.DONE),
        ("failed", State.DEAD),
        ("dead", State.DEAD),
        ("expired", State.EXPIRED),
        ("cancelled", State.CANCELLED),
        ("unknown", State.UNKNOWN),
    ],
)
def test_every_end_elsewhere_has_its_state_here(q: QueueDriver, status: str, state: State) -> None:
    task_id = hand_over(q, ordering_key="k")
    following = q.enqueue(ordering_key="k")
    assert q.claim() == [], "the key stays held while the task is away"

    q.one(Return(task_id=task_id, fence=FIRST, outcome=Outcome(status=status)))

    assert q.state(task_id) is state
    assert q.claim() == [following]


def test_cancelling_a_handed_over_task_withdraws_it_and_its_unsent_offer(q: QueueDriver) -> None:
    task_id = hand_over(q)

    answer = q.one(Cancel(task_id=task_id))

    (row,) = q.store.outbox(Lane.CONTROL, 0, limit=10, limit_bytes=1000)
    assert answer == Changed(task_id=task_id, state=State.CANCELLED, was=State.HANDED_OVER)
    assert msgspec.json.decode(row.body, type=TaskWithdrawn).task_id == task_id
    assert q.kinds(Lane.LIVE) == q.kinds(Lane.BACKLOG) == []


def test_a_task_placed_back_on_its_own_node_runs_there(q: QueueDriver) -> None:
    task_id = hand_over(q)
    q.one(RecordPlacement(task_id=task_id, fence=FIRST, node="home", decision=a_decision(task_id)))

    answer = place(q, task_id, FIRST)
    q.claim()
    q.finish(task_id, q.start(task_id))
    back = q.one(Return(task_id=task_id, fence=FIRST.with_attempt(1), outcome=SUCCEEDED))

    assert answer == Enqueued(task_id=task_id)
    assert [report.fence for report in ended_rows(q, Lane.LIVE)] == [FIRST.with_attempt(1)]
    assert back == Changed(task_id=task_id, state=State.DONE, was=State.DONE)


@pytest.mark.parametrize("how", ["lapse", "refuse", "revoke"])
def test_a_task_placed_back_on_its_own_node_is_never_lost_with_its_placement(
    q: QueueDriver, how: str
) -> None:
    task_id = hand_over(q, ordering_key="k")
    place(q, task_id, FIRST)

    if how == "lapse":
        q.clock.advance(61)
        q.one(Advance())
    elif how == "refuse":
        q.claim()
        q.one(RefusePlacement(task_id=task_id, reason="r"))
    else:
        q.one(Drop(task_id=task_id, fence=FIRST))

    assert q.state(task_id) is State.HANDED_OVER
    assert q.store.held_placements() == []
    assert q.claim() == []
    q.one(Return(task_id=task_id, fence=SECOND.with_attempt(1), outcome=SUCCEEDED))
    assert q.state(task_id) is State.DONE


def test_an_end_elsewhere_outs_the_attempt_at_home(q: QueueDriver) -> None:
    task_id = hand_over(q)
    place(q, task_id, FIRST)
    q.claim()
    fence = q.start(task_id)

    answer = q.one(Return(task_id=task_id, fence=SECOND.with_attempt(1), outcome=SUCCEEDED))

    assert answer == Changed(task_id=task_id, state=State.DONE, was=State.RUNNING)
    assert reason_of(q.finish(task_id, fence)) == "ended"


def test_a_task_that_died_elsewhere_and_is_replayed_goes_on_above_the_fences_used_there(
    q: QueueDriver,
) -> None:
    task_id = hand_over(q)
    q.one(Return(task_id=task_id, fence=FIRST.with_attempt(3), outcome=FAILED))

    q.one(Replay(task_id=task_id))
    q.claim()

    assert FIRST.with_attempt(3) < q.start(task_id)
