"""The store's contract, repetitions are recognised through the longest outage, though records are gone."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from skerry.fence import Fence
from skerry.ids import TaskId
from skerry.messages import Lane
from skerry.testing import a_task
from task_queue.limits import Limits
from task_queue.operations import Advance, Cancel, Drop, Enqueue, Enqueued, Fail, Finish, Start
from task_queue.task import State
from task_queue.testing import (
    FAILED,
    FIRST,
    ROOMY,
    SECOND,
    SUCCEEDED,
    OpenStore,
    QueueDriver,
    check_invariants,
    ended_rows,
    place,
)

OUTAGE_S = 72 * 3600.0
FEW = msgspec.structs.replace(ROOMY, keep_ended=1, remember_ended=2)


@pytest.fixture
def q(opener: OpenStore) -> Any:
    """A store that keeps hardly any record."""
    driver = QueueDriver(opener, limits=FEW)
    yield driver
    check_invariants(driver.store)
    driver.store.close()


def pass_by(q: QueueDriver, count: int = 5) -> None:
    """Have other tasks come and end, so that the records before them are pruned."""
    for _ in range(count):
        other, fence = q.run()
        q.finish(other, fence)
        q.clock.advance(1)
    q.one(Advance())


def submit(q: QueueDriver, key: str, task_id: TaskId | None = None) -> Enqueued:
    answer = q.one(Enqueue(task_id=task_id or q.ids.next(), task=a_task(idempotency_key=key)))
    assert isinstance(answer, Enqueued)
    return answer


def test_a_key_is_recognised_after_the_record_is_gone_and_over_a_restart(q: QueueDriver) -> None:
    first = submit(q, "order-1")
    q.claim()
    q.finish(first.task_id, q.start(first.task_id))
    pass_by(q)
    assert q.store.get(first.task_id) is None

    q.kill()
    q.clock.advance(OUTAGE_S)
    q.one(Advance())
    again, by_id = submit(q, "order-1"), submit(q, "order-2", first.task_id)

    assert again == Enqueued(task_id=first.task_id, is_new=False)
    assert by_id == Enqueued(task_id=first.task_id, is_new=False)
    assert q.claim() == []


def test_a_repetition_within_one_commit_with_the_pruning_is_recognised(q: QueueDriver) -> None:
    first = submit(q, "order-1")
    q.claim()
    q.finish(first.task_id, q.start(first.task_id))
    for _ in range(3):
        q.clock.advance(1)
        other, fence = q.run()
        q.finish(other, fence)
    q.clock.advance(1)

    _, again = q.apply(Advance(), Enqueue(task_id=q.ids.next(), task=a_task(idempotency_key="order-1")))

    assert q.store.get(first.task_id) is None
    assert again == Enqueued(task_id=first.task_id, is_new=False)


def test_it_is_forgotten_when_both_its_time_and_its_count_are_exceeded(q: QueueDriver) -> None:
    first = submit(q, "order-1")
    q.claim()
    q.finish(first.task_id, q.start(first.task_id))
    pass_by(q)
    too_many_but_young = submit(q, "order-1")
    q.clock.advance(q_limits().remember_s + 1)
    pass_by(q, 1)
    q.one(Advance())

    old_and_too_many = submit(q, "order-1")

    assert not too_many_but_young.is_new
    assert old_and_too_many.is_new


def test_what_is_old_and_too_many_is_forgotten_down_to_the_count_the_first_ids_first(q: QueueDriver) -> None:
    keys = [f"order-{n}" for n in range(5)]
    for key in keys:
        task_id = submit(q, key).task_id
        q.claim()
        q.finish(task_id, q.start(task_id))
        q.clock.advance(1)
    q.one(Advance())
    q.clock.advance(q_limits().remember_s + 1)
    q.one(Advance())

    assert [submit(q, key).is_new for key in keys] == [True, True, False, False, False]


def q_limits() -> Limits:
    return FEW


def test_what_is_old_is_remembered_while_there_are_few(opener: OpenStore) -> None:
    q = QueueDriver(opener, limits=msgspec.structs.replace(FEW, remember_ended=100))
    first = submit(q, "order-1")
    q.claim()
    q.finish(first.task_id, q.start(first.task_id))
    pass_by(q)

    q.clock.advance(40 * 86400.0)
    pass_by(q, 1)

    assert q.store.get(first.task_id) is None
    assert submit(q, "order-1") == Enqueued(task_id=first.task_id, is_new=False)


def test_time_without_power_and_steps_of_the_wall_clock_forget_nothing(q: QueueDriver) -> None:
    first = submit(q, "order-1")
    q.claim()
    q.finish(first.task_id, q.start(first.task_id))
    pass_by(q)

    q.clock.step_wall(20 * 365 * 86400.0)
    q.reboot(off_s=400 * 86400.0)
    q.one(Advance())

    assert submit(q, "order-1") == Enqueued(task_id=first.task_id, is_new=False)


def test_a_success_is_not_run_again_under_a_new_placement_though_its_record_is_gone(q: QueueDriver) -> None:
    task_id = q.enqueue(placement=FIRST, lease_s=1e6)
    q.claim()
    (started,) = q.apply(Start(task_id=task_id, device="cpu0"))
    q.one(Finish(task_id=task_id, fence=started.fence, outcome=SUCCEEDED))  # type: ignore[union-attr]
    pass_by(q)
    reports = len(ended_rows(q, Lane.LIVE))

    answer = place(q, task_id, SECOND)

    report = ended_rows(q, Lane.LIVE)[reports:]
    assert answer == Enqueued(task_id=task_id, is_new=False)
    assert [(one.task_id, one.outcome.status) for one in report] == [(task_id, "succeeded")]
    assert report[0].fence.is_under(SECOND)
    assert q.claim() == []


@pytest.mark.parametrize(("how", "effect"), [("dead", "idempotent"), ("dropped", "at_most_once")])
def test_what_may_run_again_is_taken_anew(q: QueueDriver, how: str, effect: str) -> None:
    task_id = q.enqueue(placement=FIRST, lease_s=1e6, retries=0, effect=effect)
    q.claim()
    if how == "dead":
        fence = q.start(task_id)
        q.one(Fail(task_id=task_id, fence=fence, outcome=FAILED))
    else:
        q.one(Drop(task_id=task_id, fence=Fence((1, 1))))
    q.clock.advance(1)
    pass_by(q)
    assert q.store.get(task_id) is None

    answer = place(q, task_id, SECOND, effect=effect)

    assert answer == Enqueued(task_id=task_id)
    assert q.claim() == [task_id]
    assert q.start(task_id) > Fence((1, 1), 1)


def test_to_take_one_anew_forgets_no_other(q: QueueDriver) -> None:
    other = submit(q, "order-1")
    q.claim()
    q.finish(other.task_id, q.start(other.task_id))
    task_id = q.enqueue(placement=FIRST, lease_s=1e6)
    q.one(Drop(task_id=task_id, fence=FIRST))
    q.clock.advance(1)
    pass_by(q)

    assert place(q, task_id, SECOND) == Enqueued(task_id=task_id)
    assert submit(q, "order-1") == Enqueued(task_id=other.task_id, is_new=False)


def test_what_was_cancelled_by_wish_is_not_taken_again(q: QueueDriver) -> None:
    task_id = q.enqueue(placement=FIRST, lease_s=1e6)
    q.one(Cancel(task_id=task_id))
    q.clock.advance(1)
    pass_by(q)

    answer = place(q, task_id, SECOND)

    assert answer == Enqueued(task_id=task_id, is_new=False)
    assert ended_rows(q, Lane.LIVE)[-1].outcome.status == State.CANCELLED


def test_the_window_is_longer_than_the_longest_outage_at_ten_tasks_a_second() -> None:
    limits = Limits()

    assert limits.remember_s > OUTAGE_S
    assert limits.keep_ended + limits.remember_ended >= 259_200, "72 h at one task a second, by count alone"


def test_records_are_forgotten_together_once_a_hundredth_too_many_have_gathered(opener: OpenStore) -> None:
    q = QueueDriver(opener, limits=msgspec.structs.replace(ROOMY, keep_ended=200))
    kept: list[int] = []
    for ended in (201, 1, 3):
        for _ in range(ended):
            q.enqueue()
        q.drain()
        q.clock.advance(1)
        q.one(Advance())
        kept.append(q.store.depth().by_state[State.DONE])

    assert kept == [201, 200, 200]
    q.store.close()
