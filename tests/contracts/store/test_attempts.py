"""The store's contract, claims, attempts and their ends."""

from __future__ import annotations

import msgspec
import pytest

from skerry.fence import Fence
from skerry.messages import Lane, Outcome
from task_queue.operations import (
    Advance,
    Advanced,
    Cancel,
    Changed,
    Claim,
    Claimed,
    Fail,
    Finish,
    HandOver,
    Park,
    Release,
    Replay,
    Start,
    Started,
)
from task_queue.task import State
from task_queue.testing import (
    FAILED,
    ROOMY,
    OpenStore,
    QueueDriver,
    a_decision,
    check_invariants,
    reason_of,
)


def test_tasks_are_claimed_by_priority_then_arrival(q: QueueDriver) -> None:
    ids = [q.enqueue(priority=priority) for priority in (4, 9, 4, 0, 9)]

    claimed = q.claim(10)

    assert claimed == [ids[1], ids[4], ids[0], ids[2], ids[3]]


def test_a_claimed_task_is_not_claimed_again_until_released(q: QueueDriver) -> None:
    first, second = q.enqueue(), q.enqueue()
    assert q.claim(1) == [first]

    others = q.claim(5)
    released = q.one(Release(task_id=first))

    assert others == [second]
    assert released == Changed(task_id=first, state=State.READY, was=State.LEASED)
    assert q.claim(5) == [first]


def test_a_claim_tells_what_is_left_of_a_task_s_time(q: QueueDriver) -> None:
    q.enqueue(expires_after_s=60, deadline_s=30)
    q.clock.advance(10)

    answer = q.one(Claim(limit=1))

    assert isinstance(answer, Claimed)
    (claimed,) = answer.tasks
    assert (claimed.expires_in_s, claimed.deadline_in_s) == (pytest.approx(50), pytest.approx(20))


def test_only_a_claimed_task_can_be_started_parked_or_handed_over(q: QueueDriver) -> None:
    task_id, unknown = q.enqueue(), q.ids.next()

    answers = q.apply(
        Start(task_id=task_id, device="cpu0"),
        Park(task_id=task_id, reason="r"),
        HandOver(task_id=task_id, reason="r"),
        Release(task_id=task_id),
        Start(task_id=unknown, device="cpu0"),
    )

    assert [reason_of(answer) for answer in answers] == ["lease_lost"] * 4 + ["not_found"]
    assert q.state(task_id) is State.READY


def test_a_task_whose_time_has_run_out_expires_instead_of_being_started(q: QueueDriver) -> None:
    task_id = q.enqueue(expires_after_s=10)
    q.claim()
    q.clock.advance(10)

    answers = q.apply(Start(task_id=task_id, device="cpu0"), Advance())

    assert answers[0] == Changed(task_id=task_id, state=State.EXPIRED, was=State.LEASED)
    assert isinstance(answers[1], Advanced)
    assert answers[1].expired == ()
    assert q.record(task_id).attempts == ()


def test_an_attempt_is_kept_with_its_decision_and_its_end(q: QueueDriver) -> None:
    task_id = q.enqueue()
    q.claim()
    decision = a_decision(task_id, "the only device")
    started = q.one(Start(task_id=task_id, device="npu0", decision=decision))
    assert started == Started(task_id=task_id, fence=Fence((), 1))

    q.one(
        Finish(
            task_id=task_id,
            fence=Fence((), 1),
            outcome=Outcome(status="succeeded", result=[1], runtime_s=2.5),
        )
    )

    record = q.record(task_id)
    (attempt,) = record.attempts
    assert (attempt.device, attempt.decision, attempt.ended, attempt.runtime_s) == (
        "npu0",
        decision,
        "succeeded",
        2.5,
    )
    assert (record.state, record.fence) == (State.DONE, Fence((), 1))
    assert record.outcome is not None
    assert record.outcome.result == [1]
    assert record.ended_wall_s == q.clock.wall_s()


def test_an_end_is_committed_once_and_under_its_own_fence_only(q: QueueDriver) -> None:
    task_id, fence = q.run()

    stale = q.finish(task_id, fence.with_attempt(7))
    done = q.finish(task_id, fence)
    again = q.finish(task_id, fence)
    other = q.one(Fail(task_id=task_id, fence=fence, outcome=FAILED))

    assert reason_of(stale) == "fenced"
    assert done == Changed(task_id=task_id, state=State.DONE, was=State.RUNNING)
    assert again == Changed(task_id=task_id, state=State.DONE, was=State.DONE)
    assert reason_of(other) == "ended"
    assert q.kinds(Lane.BACKLOG) == ["task.ended"]


def test_a_failed_task_waits_and_is_tried_again_until_its_tries_are_used_up(q: QueueDriver) -> None:
    task_id, fence = q.run(retries=1)

    retried = q.one(Fail(task_id=task_id, fence=fence, outcome=FAILED, retry_after_s=10))
    early = q.claim()
    q.clock.advance(10)
    q.one(Advance())
    assert q.claim() == [task_id]
    second = q.start(task_id)
    parked = q.one(Fail(task_id=task_id, fence=second, outcome=FAILED, retry_after_s=10))

    assert retried == Changed(task_id=task_id, state=State.DELAYED, was=State.RUNNING)
    assert early == []
    assert fence < second
    assert parked == Changed(task_id=task_id, state=State.DEAD, was=State.RUNNING)
    assert [attempt.error for attempt in q.record(task_id).attempts] == [FAILED.error] * 2


def test_a_failure_that_was_not_the_task_s_fault_leaves_its_tries_but_not_for_ever(q: QueueDriver) -> None:
    task_id, fence = q.run(retries=0)

    states = []
    for _ in range(30):
        answer = q.one(Fail(task_id=task_id, fence=fence, outcome=FAILED, counts=False))
        assert isinstance(answer, Changed)
        states.append(answer.state)
        if answer.state is not State.READY:
            break
        q.claim()
        fence = q.start(task_id)

    assert states[0] is State.READY
    assert states[-1] is State.DEAD, "a task that takes every device down must end"


def test_a_failure_of_the_task_itself_parks_it_at_once(q: QueueDriver) -> None:
    task_id, fence = q.run(retries=5)

    answer = q.one(Fail(task_id=task_id, fence=fence, outcome=FAILED, may_retry=False))

    assert answer == Changed(task_id=task_id, state=State.DEAD, was=State.RUNNING)


@pytest.mark.parametrize(("counts", "end"), [(True, State.DEAD), (False, State.UNKNOWN)])
def test_an_at_most_once_task_is_never_tried_again(q: QueueDriver, counts: bool, end: State) -> None:
    task_id, fence = q.run(retries=5, effect="at_most_once")

    answer = q.one(Fail(task_id=task_id, fence=fence, outcome=FAILED, counts=counts))

    assert answer == Changed(task_id=task_id, state=end, was=State.RUNNING)
    assert q.claim() == []


def test_a_parked_task_is_dead_with_its_reason_and_can_be_replayed(q: QueueDriver) -> None:
    task_id = q.enqueue()
    q.claim()

    parked = q.one(Park(task_id=task_id, reason="no such command", decision=a_decision(task_id)))
    record = q.record(task_id)
    replayed = q.one(Replay(task_id=task_id))

    assert parked == Changed(task_id=task_id, state=State.DEAD, was=State.LEASED)
    assert record.outcome is not None
    assert record.outcome.error == "no such command"
    assert record.decision == a_decision(task_id)
    assert replayed == Changed(task_id=task_id, state=State.READY, was=State.DEAD)
    assert q.claim() == [task_id]
    assert reason_of(q.one(Replay(task_id=task_id))) == "not_allowed"


def test_a_replayed_task_gets_a_fence_of_its_own_and_its_time_again(q: QueueDriver) -> None:
    task_id, first = q.run(retries=0, expires_after_s=50)
    q.one(Fail(task_id=task_id, fence=first, outcome=FAILED))
    q.clock.advance(60)

    q.one(Replay(task_id=task_id))
    expired = q.one(Advance())
    q.claim()

    assert isinstance(expired, Advanced)
    assert expired.expired == ()
    assert q.start(task_id) > first


def test_a_result_above_the_limit_is_refused_and_the_attempt_goes_on(opener: OpenStore) -> None:
    q = QueueDriver(opener, limits=msgspec.structs.replace(ROOMY, max_document_bytes=1000))
    task_id, fence = q.run()

    answer = q.one(
        Finish(task_id=task_id, fence=fence, outcome=Outcome(status="succeeded", result="x" * 2000))
    )

    assert reason_of(answer) == "too_large"
    assert q.state(task_id) is State.RUNNING
    check_invariants(q.store)


@pytest.mark.parametrize("state", [State.READY, State.LEASED, State.RUNNING, State.DELAYED, State.BLOCKED])
def test_a_task_can_be_cancelled_in_every_open_state(q: QueueDriver, state: State) -> None:
    if state is State.BLOCKED:
        q.enqueue(ordering_key="k")
    fields = {State.DELAYED: {"delay_s": 60}, State.BLOCKED: {"ordering_key": "k"}}.get(state, {})
    task_id = q.enqueue(**fields)
    if state in (State.LEASED, State.RUNNING):
        q.claim()
    if state is State.RUNNING:
        q.start(task_id)
    assert q.state(task_id) is state

    answer = q.one(Cancel(task_id=task_id))

    assert answer == Changed(task_id=task_id, state=State.CANCELLED, was=state)
    assert reason_of(q.one(Cancel(task_id=task_id))) == "ended"
    assert q.kinds(Lane.BACKLOG) == ["task.ended"]
    assert all(attempt.ended == "cancelled" for attempt in q.record(task_id).attempts)
