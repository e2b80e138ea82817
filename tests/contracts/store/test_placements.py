"""The store's contract, tasks that a coordinator placed here."""

from __future__ import annotations

import msgspec
import pytest

from skerry.messages import Lane, PlacementRefused
from skerry.testing import a_task
from task_queue.limits import Limits
from task_queue.operations import (
    Advance,
    Advanced,
    Changed,
    Drop,
    Enqueue,
    Enqueued,
    Fail,
    HandOver,
    RecordPlacement,
    RefusePlacement,
    RenewPlacements,
    Return,
)
from task_queue.task import State
from task_queue.testing import (
    FAILED,
    FIRST,
    SECOND,
    SUCCEEDED,
    THIRD,
    OpenStore,
    QueueDriver,
    a_decision,
    check_invariants,
    ended_rows,
    place,
    reason_of,
)


def test_a_placed_task_runs_and_reports_under_its_placement(q: QueueDriver) -> None:
    task_id = q.enqueue(placement=FIRST, lease_s=60)
    assert q.store.held_placements() == [task_id]
    q.claim()

    fence = q.start(task_id)
    q.finish(task_id, fence)

    (report,) = ended_rows(q, Lane.LIVE)
    assert fence == FIRST.with_attempt(1)
    assert (report.task_id, report.fence, report.is_placed) == (task_id, fence, True)
    assert ended_rows(q, Lane.BACKLOG) == []
    assert q.store.held_placements() == []


@pytest.mark.parametrize("limits", [Limits(max_bytes=1), Limits(max_document_bytes=10)])
def test_a_placement_that_the_queue_has_no_room_for_goes_back_at_once(
    opener: OpenStore, limits: Limits
) -> None:
    q = QueueDriver(opener, limits=msgspec.structs.replace(limits, ballast_bytes=0, free_floor_bytes=0))
    task_id = q.ids.next()

    answer = place(q, task_id, FIRST)

    assert reason_of(answer) in ("full", "too_large")
    (row,) = q.store.outbox(Lane.LIVE, 0, limit=10, limit_bytes=1 << 20)
    refusal = msgspec.json.decode(row.body, type=PlacementRefused)
    assert (refusal.task_id, refusal.fence) == (task_id, FIRST)
    assert refusal.reason
    q.store.close()


def test_a_task_of_this_node_s_own_reports_in_the_backlog(q: QueueDriver) -> None:
    task_id, fence = q.run(kind="resize")

    q.finish(task_id, fence)

    (report,) = ended_rows(q, Lane.BACKLOG)
    assert (report.task_kind, report.is_placed, report.outcome) == ("resize", False, SUCCEEDED)


def test_a_node_without_a_coordinator_reports_nothing(opener: OpenStore) -> None:
    q = QueueDriver(opener, reports=False)

    task_id, fence = q.run()
    q.finish(task_id, fence)

    assert sum(q.store.depth().outbox.values()) == 0
    check_invariants(q.store)


def test_a_placement_is_taken_once_a_higher_one_replaces_it_and_a_lower_one_is_fenced(q: QueueDriver) -> None:
    task_id = q.enqueue(placement=SECOND, lease_s=60)

    same, lower, higher = (place(q, task_id, fence) for fence in (SECOND, FIRST, THIRD))
    q.claim()

    assert same == higher == Enqueued(task_id=task_id, is_new=False)
    assert reason_of(lower) == "fenced"
    assert q.start(task_id) == THIRD.with_attempt(1)


def test_a_running_attempt_goes_on_under_a_higher_placement_and_reports_under_it(q: QueueDriver) -> None:
    task_id = q.enqueue(placement=FIRST, lease_s=60)
    q.claim()
    fence = q.start(task_id)

    place(q, task_id, SECOND)
    done = q.finish(task_id, fence)

    (report,) = ended_rows(q, Lane.LIVE)
    assert isinstance(done, Changed)
    assert report.fence == SECOND.with_attempt(1)


def test_a_finished_task_placed_again_reports_its_end_under_the_new_placement(q: QueueDriver) -> None:
    task_id = q.enqueue(placement=FIRST, lease_s=60)
    q.claim()
    q.finish(task_id, q.start(task_id))

    answer = place(q, task_id, SECOND)

    assert answer == Enqueued(task_id=task_id, is_new=False)
    assert q.claim() == []
    assert [report.fence for report in ended_rows(q, Lane.LIVE)] == [
        FIRST.with_attempt(1),
        SECOND.with_attempt(1),
    ]


@pytest.mark.parametrize(("effect", "runs"), [("idempotent", True), ("at_most_once", False)])
def test_a_failed_task_placed_again_runs_again_if_it_may(q: QueueDriver, effect: str, runs: bool) -> None:
    task_id = q.ids.next()
    place(q, task_id, FIRST, effect=effect, retries=0)
    q.claim()
    first = q.start(task_id)
    q.one(Fail(task_id=task_id, fence=first, outcome=FAILED))

    answer = place(q, task_id, SECOND, effect=effect)

    assert answer == Enqueued(task_id=task_id, is_new=runs)
    assert q.claim() == ([task_id] if runs else [])
    if runs:
        assert q.start(task_id) == SECOND.with_attempt(2)
    else:
        assert [report.fence.path for report in ended_rows(q, Lane.LIVE)] == [FIRST.path, SECOND.path]


def test_a_refused_placement_is_forgotten_but_can_be_placed_again(q: QueueDriver) -> None:
    task_id = q.enqueue(placement=FIRST, lease_s=60)
    q.claim()

    answer = q.one(RefusePlacement(task_id=task_id, reason="the device is gone"))
    same = place(q, task_id, FIRST)
    held = q.store.held_placements()
    higher = place(q, task_id, SECOND)

    row = q.store.outbox(Lane.LIVE, 0, limit=1, limit_bytes=1)[0]
    refused = msgspec.json.decode(row.body, type=PlacementRefused)
    assert answer == Changed(task_id=task_id, state=State.CANCELLED, was=State.LEASED)
    assert (refused.task_id, refused.fence, refused.reason) == (task_id, FIRST, "the device is gone")
    assert same == Enqueued(task_id=task_id, is_new=False)
    assert held == []
    assert higher == Enqueued(task_id=task_id)
    assert q.claim() == [task_id]


def test_a_placement_that_lapsed_before_its_start_is_given_back(q: QueueDriver) -> None:
    lapsed = q.enqueue(placement=FIRST, lease_s=10)
    started = q.enqueue(placement=SECOND, lease_s=10, priority=9)
    q.claim()
    q.start(started)
    q.clock.advance(10)

    answer = q.one(Advance())

    assert isinstance(answer, Advanced)
    assert answer.dropped == ((lapsed, State.READY),)
    assert q.kinds(Lane.LIVE) == ["placement.refused"]
    assert q.state(started) is State.RUNNING, "what has started keeps its work"


def test_renewed_placements_stay(q: QueueDriver) -> None:
    task_id = q.enqueue(placement=FIRST, lease_s=10)
    q.clock.advance(9)
    q.one(RenewPlacements(lease_s=10))
    q.clock.advance(9)

    early = q.one(Advance())
    q.clock.advance(1)
    late = q.one(Advance())

    assert isinstance(early, Advanced)
    assert isinstance(late, Advanced)
    assert (early.dropped, early.next_due_in_s) == ((), pytest.approx(1))
    assert late.dropped == ((task_id, State.READY),)


@pytest.mark.parametrize("state", [State.READY, State.LEASED, State.RUNNING])
def test_a_revoked_placement_is_dropped_without_a_report_unless_it_ended(
    q: QueueDriver, state: State
) -> None:
    task_id = q.enqueue(placement=SECOND, lease_s=60)
    fence = SECOND
    if state is not State.READY:
        q.claim()
    if state is State.RUNNING:
        fence = q.start(task_id)

    older = q.one(Drop(task_id=task_id, fence=FIRST))
    answer = q.one(Drop(task_id=task_id, fence=SECOND))

    assert reason_of(older) == "fenced"
    assert answer == Changed(task_id=task_id, state=State.CANCELLED, was=state)
    assert q.kinds(Lane.LIVE) == []
    assert reason_of(q.one(Drop(task_id=task_id, fence=SECOND))) == "ended"
    assert reason_of(q.finish(task_id, fence)) == "ended"


def test_a_dropped_at_most_once_task_that_had_started_is_reported_unknown_when_placed_again(
    q: QueueDriver,
) -> None:
    task_id = q.ids.next()
    place(q, task_id, FIRST, effect="at_most_once")
    q.claim()
    q.start(task_id)
    q.one(Drop(task_id=task_id, fence=FIRST))

    place(q, task_id, SECOND, effect="at_most_once")

    (report,) = ended_rows(q, Lane.LIVE)
    assert q.claim() == []
    assert (report.fence, report.outcome.status) == (SECOND.with_attempt(1), "unknown")


def test_operations_on_custody_refuse_the_wrong_kind_of_task(q: QueueDriver) -> None:
    own = q.enqueue()
    placed = q.enqueue(placement=FIRST, lease_s=60)
    q.claim(2)

    answers = q.apply(
        RefusePlacement(task_id=own, reason="r"),
        Drop(task_id=own, fence=FIRST),
        Return(task_id=own, fence=FIRST, outcome=SUCCEEDED),
        RecordPlacement(task_id=own, fence=FIRST, node="n", decision=a_decision(own)),
        Enqueue(task_id=own, task=a_task(), placement=FIRST),
        HandOver(task_id=placed, reason="r"),
        Return(task_id=placed, fence=FIRST, outcome=SUCCEEDED),
    )

    assert [reason_of(answer) for answer in answers] == ["not_allowed"] * 7
    assert q.state(own) is q.state(placed) is State.LEASED
