"""The store's contract, expiry, delays and clocks."""

from __future__ import annotations

import pytest

from task_queue.operations import (
    Advance,
    Advanced,
)
from task_queue.task import State
from task_queue.testing import (
    FIRST,
    QueueDriver,
)


def test_expiry_counts_from_acceptance_and_tells_the_state_each_was_in(q: QueueDriver) -> None:
    running, _ = q.run(expires_after_s=10)
    waiting = q.enqueue(expires_after_s=10)
    q.clock.advance(9.9)
    early = q.one(Advance())
    q.clock.advance(0.2)

    answer = q.one(Advance())

    assert isinstance(early, Advanced)
    assert (early.expired, early.next_due_in_s) == ((), pytest.approx(0.1))
    assert isinstance(answer, Advanced)
    assert sorted(answer.expired) == sorted([(running, State.RUNNING), (waiting, State.READY)])
    assert q.state(running) is q.state(waiting) is State.EXPIRED
    assert answer.next_due_in_s is None
    assert q.record(running).attempts[0].ended == "expired"


def test_time_asks_for_at_most_so_much_at_once(q: QueueDriver) -> None:
    for _ in range(5):
        q.enqueue(delay_s=1)
    q.clock.advance(1)

    first = q.one(Advance(limit=3))
    second = q.one(Advance(limit=3))

    assert isinstance(first, Advanced)
    assert isinstance(second, Advanced)
    assert (first.ready, first.next_due_in_s, second.ready) == (3, 0.0, 2)


@pytest.mark.parametrize("step_s", [3600.0, -3600.0, 20 * 365 * 86400.0, -1.7e9])
def test_a_step_of_the_wall_clock_expires_nothing_and_delays_nothing(q: QueueDriver, step_s: float) -> None:
    waiting = q.enqueue(expires_after_s=100)
    delayed = q.enqueue(delay_s=50)
    placed = q.enqueue(placement=FIRST, lease_s=100)

    q.clock.step_wall(step_s)
    q.kill()
    answer = q.one(Advance())

    assert isinstance(answer, Advanced)
    assert (answer.ready, answer.expired, answer.dropped) == (0, (), ())
    assert answer.next_due_in_s == pytest.approx(50)
    q.clock.advance(50)
    q.one(Advance())
    assert sorted(q.claim(10)) == sorted([waiting, delayed, placed])


def test_time_without_power_does_not_count(q: QueueDriver) -> None:
    task_id = q.enqueue(expires_after_s=100)
    q.clock.advance(40)
    q.one(Advance())

    q.reboot(off_s=30 * 86400.0)
    early = q.one(Advance())
    q.clock.advance(61)
    answer = q.one(Advance())

    assert isinstance(early, Advanced)
    assert (early.expired, early.next_due_in_s) == ((), pytest.approx(60))
    assert isinstance(answer, Advanced)
    assert answer.expired == ((task_id, State.READY),)


def test_time_goes_on_over_a_restart_in_one_boot(q: QueueDriver) -> None:
    q.enqueue(expires_after_s=100)

    q.store.close()
    q.clock.advance(70)
    q.kill()
    answer = q.one(Advance())

    assert isinstance(answer, Advanced)
    assert answer.next_due_in_s == pytest.approx(30)
