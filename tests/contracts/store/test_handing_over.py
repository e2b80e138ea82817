"""The store's contract, tasks that go away and come back."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from skerry.fence import Fence
from skerry.ids import TaskId
from skerry.messages import Lane, Outcome, TaskOffered, TaskWithdrawn
from skerry.task import check_task, is_out_of_time
from task_queue.limits import Limits
from task_queue.operations import (
    Advance,
    Advanced,
    Cancel,
    Changed,
    Drop,
    Enqueued,
    HandOver,
    OfferAgain,
    RecordPlacement,
    RefusePlacement,
    Replay,
    Return,
    TrimOutbox,
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


# --- time, along custody ------------------------------------------------------------------------------------


def the_offers(q: QueueDriver) -> list[TaskOffered]:
    rows = q.store.outbox(Lane.LIVE, 0, limit=100, limit_bytes=1 << 20)
    return [msgspec.json.decode(row.body, type=TaskOffered) for row in rows if row.kind == "task.offered"]


def acknowledge(q: QueueDriver) -> None:
    q.one(TrimOutbox(lane=Lane.LIVE, upto=q.store.depth().written[Lane.LIVE]))


def advance(q: QueueDriver, seconds: float) -> Advanced:
    q.clock.advance(seconds)
    answer = q.one(Advance())
    assert isinstance(answer, Advanced)
    return answer


def test_an_offer_carries_the_time_that_is_left_and_the_row_keeps_its_own(q: QueueDriver) -> None:
    task_id = q.enqueue(expires_after_s=100, deadline_s=60)
    q.clock.advance(30)
    q.claim()

    q.one(HandOver(task_id=task_id, reason="r"))

    (offer,) = the_offers(q)
    assert [offer.task.expires_after_s, offer.task.deadline_s] == pytest.approx([70, 30])
    assert (q.record(task_id).task.expires_after_s, q.record(task_id).task.deadline_s) == (100, 60)


def test_a_deadline_that_has_passed_goes_along_as_one_that_cannot_be_met(q: QueueDriver) -> None:
    task_id = q.enqueue(deadline_s=5)
    q.clock.advance(30)
    q.claim()

    q.one(HandOver(task_id=task_id, reason="r"))

    (offer,) = the_offers(q)
    assert offer.task.deadline_s == pytest.approx(0.001)
    check_task(offer.task)


def test_a_task_with_no_time_left_expires_instead_of_being_handed_over(q: QueueDriver) -> None:
    task_id = q.enqueue(expires_after_s=10)
    q.claim()
    q.clock.advance(11)

    answer = q.one(HandOver(task_id=task_id, reason="r"))

    assert answer == Changed(task_id=task_id, state=State.EXPIRED, was=State.LEASED)
    assert the_offers(q) == []
    assert [report.outcome.status for report in ended_rows(q, Lane.BACKLOG)] == ["expired"]


def test_an_offer_that_nobody_took_is_taken_back_when_the_time_is_over(q: QueueDriver) -> None:
    task_id = hand_over(q, expires_after_s=60, ordering_key="k")
    following = q.enqueue(ordering_key="k")

    early, answer = advance(q, 59), advance(q, 2)

    assert early.expired == ()
    assert early.next_due_in_s == pytest.approx(1)
    assert answer.expired == ((task_id, State.HANDED_OVER),)
    assert q.state(task_id) is State.EXPIRED
    assert the_offers(q) == []
    assert [(r.task_id, r.outcome.status, r.is_placed) for r in ended_rows(q, Lane.LIVE)] == [
        (task_id, "expired", False)
    ], "it follows the offer in its lane, in case that is on its way"
    assert q.claim() == [following]


@pytest.mark.parametrize("how", ["acknowledged", "placed", "at_most_once", "came back", "offered again"])
def test_what_may_have_been_taken_waits_for_word_and_then_ends_as_unknown(q: QueueDriver, how: str) -> None:
    effect = "at_most_once" if how == "at_most_once" else "idempotent"
    task_id = hand_over(q, expires_after_s=60, effect=effect)
    if how == "acknowledged":
        acknowledge(q)
    elif how == "placed":
        q.one(RecordPlacement(task_id=task_id, fence=FIRST, node="n", decision=a_decision(task_id)))
    elif how == "came back":
        place(q, task_id, FIRST)
        q.one(Drop(task_id=task_id, fence=FIRST))
    elif how == "offered again":
        acknowledge(q)
        q.one(OfferAgain(task_id=task_id))
    grace_s = Limits().await_word_s

    at_its_end, waits, left = advance(q, 61), q.record(task_id), the_offers(q)
    before, after = advance(q, grace_s - 2), advance(q, 2)

    assert (at_its_end.expired, before.given_up) == ((), ())
    assert waits.state is State.HANDED_OVER
    assert at_its_end.next_due_in_s == pytest.approx(grace_s - 1)
    assert "time ran out" in waits.waiting_for or how in ("came back", "offered again")
    assert all(is_out_of_time(offer.task) for offer in left) or how == "offered again", "nobody takes it"
    assert after.given_up == ((task_id, State.HANDED_OVER),)
    assert after.next_due_in_s is None
    outcome = q.record(task_id).outcome
    assert q.state(task_id) is State.UNKNOWN
    assert outcome is not None
    assert outcome.status == "unknown"
    assert "may have taken effect" in outcome.error
    assert [report.outcome.status for report in ended_rows(q, Lane.LIVE)] == ["unknown"]


def test_of_an_offer_that_may_have_been_taken_once_the_coordinator_is_asked(q: QueueDriver) -> None:
    task_id = hand_over(q, expires_after_s=60, effect="at_most_once")
    before = q.store.depth().written[Lane.LIVE]
    advance(q, 61)

    (row,) = q.store.outbox(Lane.LIVE, 0, limit=100, limit_bytes=1 << 20)

    assert row.seq > before, "it goes behind the offer, which may be on its way"
    assert is_out_of_time(the_offers(q)[0].task)
    q.one(Return(task_id=task_id, fence=Fence(), outcome=Outcome(status="expired")))
    assert q.state(task_id) is State.EXPIRED
    assert the_offers(q) == []


def test_word_that_comes_while_it_is_waited_for_counts(q: QueueDriver) -> None:
    task_id = hand_over(q, expires_after_s=60)
    acknowledge(q)
    advance(q, 3600)

    q.one(Return(task_id=task_id, fence=FIRST.with_attempt(1), outcome=SUCCEEDED))

    assert q.state(task_id) is State.DONE


@pytest.mark.parametrize("state", [State.EXPIRED, State.UNKNOWN])
def test_word_that_comes_too_late_is_refused_by_name_and_changes_nothing(
    q: QueueDriver, state: State
) -> None:
    task_id = hand_over(q, expires_after_s=60)
    if state is State.UNKNOWN:
        acknowledge(q)
        advance(q, 61)
    advance(q, Limits().await_word_s)

    answer = q.one(Return(task_id=task_id, fence=FIRST.with_attempt(1), outcome=SUCCEEDED))
    same = q.one(Return(task_id=task_id, fence=Fence(), outcome=Outcome(status=state.value)))

    assert reason_of(answer) == "ended"
    assert same == Changed(task_id=task_id, state=state, was=state)
    assert q.state(task_id) is state


def test_a_ledger_that_is_gone_is_not_offered_what_has_no_time_left(q: QueueDriver) -> None:
    task_id = hand_over(q, expires_after_s=60)
    acknowledge(q)
    advance(q, 61)

    answer = q.one(OfferAgain(task_id=task_id))

    assert answer == Changed(task_id=task_id, state=State.UNKNOWN, was=State.HANDED_OVER)
    assert the_offers(q) == []


def test_an_offer_made_again_carries_the_time_that_is_left(q: QueueDriver) -> None:
    task_id = hand_over(q, expires_after_s=60)
    acknowledge(q)
    advance(q, 40)

    q.one(OfferAgain(task_id=task_id))

    (offer,) = the_offers(q)
    assert offer.task.expires_after_s == pytest.approx(20)


def test_a_task_without_a_term_waits_for_its_end_as_long_as_it_takes(q: QueueDriver) -> None:
    task_id = hand_over(q)

    answer = advance(q, 30 * 86400.0)

    assert (answer.expired, answer.given_up, answer.next_due_in_s) == ((), (), None)
    assert q.state(task_id) is State.HANDED_OVER
