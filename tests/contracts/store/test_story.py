"""The store's contract, what happened to a task: each event once, in order, with what there is to say."""

from __future__ import annotations

import pytest

from skerry.decision import Candidate, Decision, Verdict
from skerry.fence import Fence
from skerry.ids import TaskId
from skerry.messages import Outcome
from task_queue.operations import (
    Advance,
    Cancel,
    Fail,
    Finish,
    HandOver,
    Park,
    RecordPlacement,
    Replay,
    Return,
    Start,
)
from task_queue.store import TaskFilter
from task_queue.story import STORY_LIMIT, STORY_SLICE
from task_queue.task import State
from task_queue.testing import FAILED, FIRST, SUCCEEDED, QueueDriver, a_decision, place


def whats(q: QueueDriver, task_id: TaskId) -> list[str]:
    return [event.what for event in q.store.story(task_id)]


def test_a_story_begins_with_the_acceptance_and_has_each_event_with_its_times(q: QueueDriver) -> None:
    task_id = q.enqueue(delay_s=5, retries=1)
    q.clock.advance(5)
    q.one(Advance())
    q.claim()
    q.clock.advance(1)
    fence = q.start(task_id)
    q.one(Fail(task_id=task_id, fence=fence, outcome=FAILED))
    q.claim()
    second = q.start(task_id)
    q.clock.advance(2)
    q.finish(task_id, second)

    story = q.store.story(task_id)

    assert [event.what for event in story] == [
        "accepted",
        "due",
        "started",
        "retried",
        "started",
        "succeeded",
    ]
    assert [event.fence for event in story if event.what == "started"] == [fence, second]
    assert story[3].error == FAILED.error
    assert story[-1].outcome == SUCCEEDED
    assert story[-1].at_wall_s == q.clock.wall_s()
    times = [event.on_s or 0.0 for event in story[1:]]
    assert times == sorted(times)
    assert times[-1] - times[1] == pytest.approx(2)


def test_claims_and_releases_are_memory_only_and_tell_nothing(q: QueueDriver) -> None:
    task_id = q.enqueue()

    q.claim()
    q.kill()

    assert whats(q, task_id) == ["accepted"]
    assert q.store.story(q.ids.next()) == ()


def full_decision(task_id: str) -> Decision:
    verdict = Verdict(rule="residency", allowed=False, message="the data stay in the region")
    return Decision(
        task_id=task_id,
        decided_by="policy:v7",
        node="n1",
        device="npu0",
        reason="it is done soonest there",
        candidates=(
            Candidate(node="n1", device="npu0", device_class="npu", score=87.25, expected_s=0.13125),
            Candidate(node="n2", device="gpu0", device_class="gpu", verdicts=(verdict,)),
            Candidate(node="n1", device="cpu0", score=12.8, expected_s=1.25),
        ),
        gate_state="canary",
        gap_to_bound=0.04,
        uptime_s=12.5,
        wall_s=1.7e9,
    )


@pytest.mark.parametrize(
    "outcome",
    [
        Outcome(
            status="succeeded",
            result={"n": 1},
            node="n1",
            device="npu0",
            device_class="npu",
            decided_by="policy:v7",
            runtime_s=0.125,
        ),
        Outcome(status="succeeded", node="n1", device="npu0", device_class="tpu", decided_by="policy:v7"),
        Outcome(status="succeeded", node="n9", device="npu0", device_class="npu", decided_by="policy:v7"),
        Outcome(status="succeeded"),
    ],
    ids=["as started", "another class", "another node", "nowhere"],
)
def test_a_decision_and_an_outcome_are_kept_to_the_last_field(q: QueueDriver, outcome: Outcome) -> None:
    task_id = q.enqueue()
    q.claim()
    decision = full_decision(task_id)
    q.one(Start(task_id=task_id, device="npu0", decision=decision))

    q.one(Finish(task_id=task_id, fence=Fence((), 1), outcome=outcome))

    record = q.record(task_id)
    (listed,) = q.store.find(TaskFilter())
    assert record.attempts[0].decision == decision
    assert record.outcome == listed.outcome == outcome
    assert q.store.story(task_id)[-1].outcome == outcome


def test_word_of_a_task_that_is_elsewhere_takes_the_place_of_the_word_before_it(q: QueueDriver) -> None:
    task_id = q.enqueue()
    q.claim()
    q.one(HandOver(task_id=task_id, reason="too big", decision=a_decision(task_id, "no room here")))

    for number, node in enumerate(("", "n2", "n3"), start=1):
        decision = a_decision(task_id, f"word {number}")
        q.one(RecordPlacement(task_id=task_id, fence=Fence((1, number)), node=node, decision=decision))
    told = q.store.story(task_id)
    latest = q.record(task_id).decision
    q.one(Return(task_id=task_id, fence=Fence((1, 3), 1), outcome=SUCCEEDED))

    assert [event.what for event in told] == ["accepted", "handed_over", "noted"]
    assert (told[1].error, told[-1].node) == ("too big", "n3")
    assert latest is not None
    assert latest.reason == "word 3"
    assert whats(q, task_id) == ["accepted", "handed_over", "noted", "returned"]


def test_a_placement_is_told_with_its_fence_and_a_drop_with_its_reason(q: QueueDriver) -> None:
    task_id = q.enqueue(placement=FIRST, lease_s=5)
    q.clock.advance(6)

    q.one(Advance())
    place(q, task_id, Fence((1, 9)))

    story = q.store.story(task_id)
    assert [event.what for event in story] == ["accepted", "dropped", "placed"]
    assert (story[1].error, story[2].fence) == ("the placement's lease ran out", Fence((1, 9)))


@pytest.mark.parametrize(("is_wish", "what"), [(True, "cancelled"), (False, "exhausted")])
def test_an_end_outside_an_attempt_is_told(q: QueueDriver, is_wish: bool, what: str) -> None:
    task_id = q.enqueue()
    q.claim()

    q.one(Cancel(task_id=task_id) if is_wish else Park(task_id=task_id, reason="no such command"))

    story = q.store.story(task_id)
    assert [event.what for event in story] == ["accepted", what]
    assert story[-1].outcome is not None


def test_a_replay_is_told_and_the_outcome_before_it_is_only_history(q: QueueDriver) -> None:
    task_id, fence = q.run(retries=0)
    q.one(Fail(task_id=task_id, fence=fence, outcome=FAILED))

    q.one(Replay(task_id=task_id))

    assert whats(q, task_id) == ["accepted", "started", "exhausted", "replayed"]
    assert q.record(task_id).outcome is None
    assert q.store.story(task_id)[2].outcome == FAILED


def test_of_a_very_long_story_the_latest_part_is_kept(q: QueueDriver) -> None:
    task_id = q.enqueue(retries=100)
    fences: list[Fence] = []
    while q.state(task_id) is State.READY:
        q.claim()
        fences.append(q.start(task_id))
        q.one(Fail(task_id=task_id, fence=fences[-1], outcome=FAILED))
    q.one(Replay(task_id=task_id))
    for _ in range(40):
        q.claim()
        fences.append(q.start(task_id))
        q.one(Fail(task_id=task_id, fence=fences[-1], outcome=FAILED))

    story = q.store.story(task_id)

    assert STORY_LIMIT <= len(story) <= STORY_LIMIT + STORY_SLICE
    assert [event.fence for event in story if event.fence is not None][-3:] == fences[-3:]
    assert [one.fence for one in q.record(task_id).attempts][-3:] == fences[-3:]
    assert all(one.ended for one in q.record(task_id).attempts)


def test_a_story_survives_a_restart(q: QueueDriver) -> None:
    task_id, fence = q.run()
    q.finish(task_id, fence)
    told = q.store.story(task_id)

    q.kill()

    assert q.store.story(task_id) == told
