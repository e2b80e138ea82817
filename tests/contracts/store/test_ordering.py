"""The store's contract, tasks with one key run in turn."""

from __future__ import annotations

from task_queue.operations import (
    Advance,
    Advanced,
    Cancel,
    Changed,
    Fail,
    Park,
    Replay,
)
from task_queue.task import State
from task_queue.testing import (
    FAILED,
    QueueDriver,
)


def test_tasks_of_one_key_run_one_after_another_and_hold_up_no_other_key(q: QueueDriver) -> None:
    a1, a2, a3 = (q.enqueue(ordering_key="a", priority=p) for p in (0, 9, 9))
    b1 = q.enqueue(ordering_key="b")

    assert sorted(q.claim(10)) == sorted([a1, b1])
    assert q.state(a2) is q.state(a3) is State.BLOCKED
    q.finish(a1, q.start(a1))
    assert q.claim(10) == [a2]
    q.one(Fail(task_id=a2, fence=q.start(a2), outcome=FAILED, retry_after_s=5))
    assert q.claim(10) == [], "a task waiting to be tried again keeps its place"
    q.clock.advance(5)
    q.one(Advance())
    assert q.claim(10) == [a2]
    q.one(Cancel(task_id=a2))
    assert q.claim(10) == [a3]


def test_a_key_is_kept_apart_by_tenant(q: QueueDriver) -> None:
    ids = [q.enqueue(ordering_key="k", tenant=tenant) for tenant in ("a", "b")]

    assert q.claim(10) == ids


def test_a_delayed_task_holds_its_key_and_a_younger_one_waits_when_it_is_due_first(q: QueueDriver) -> None:
    slow = q.enqueue(ordering_key="k", delay_s=20)
    fast = q.enqueue(ordering_key="k", delay_s=5)
    q.clock.advance(6)
    q.one(Advance())

    assert q.state(fast) is State.BLOCKED
    q.clock.advance(15)
    q.one(Advance())
    assert q.claim(10) == [slow]


def test_a_replayed_task_waits_behind_its_key(q: QueueDriver) -> None:
    first = q.enqueue(ordering_key="k")
    second = q.enqueue(ordering_key="k")
    q.claim()
    q.one(Park(task_id=first, reason="r"))

    answer = q.one(Replay(task_id=first))

    assert answer == Changed(task_id=first, state=State.BLOCKED, was=State.DEAD)
    assert q.claim(10) == [second]
    q.finish(second, q.start(second))
    assert q.claim(10) == [first]


def test_a_replayed_task_does_not_block_the_one_that_holds_its_key(q: QueueDriver) -> None:
    first = q.enqueue(ordering_key="k")
    second = q.enqueue(ordering_key="k")
    q.claim()
    q.one(Park(task_id=first, reason="r"))
    q.claim()
    q.one(Fail(task_id=second, fence=q.start(second), outcome=FAILED, retry_after_s=5))

    q.one(Replay(task_id=first))
    q.clock.advance(5)
    q.one(Advance())

    assert q.claim(10) == [second]
    q.finish(second, q.start(second))
    assert q.claim(10) == [first]


def test_expiry_of_a_whole_key_in_one_commit_leaves_nothing_blocked(q: QueueDriver) -> None:
    ids = [q.enqueue(ordering_key="k", expires_after_s=5) for _ in range(3)]
    last = q.enqueue(ordering_key="k")
    q.clock.advance(5)

    answer = q.one(Advance())

    assert isinstance(answer, Advanced)
    assert {task_id for task_id, _ in answer.expired} == set(ids)
    assert q.claim(10) == [last]
