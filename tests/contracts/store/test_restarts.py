"""The store's contract, what a killed process leaves behind."""

from __future__ import annotations

from skerry.messages import Lane
from task_queue.task import State
from task_queue.testing import (
    QueueDriver,
    reason_of,
)


def test_a_restart_empties_the_window_and_leaves_nothing_running(q: QueueDriver) -> None:
    running, first = q.run()
    claimed = q.enqueue()
    q.claim()

    q.kill()

    assert q.state(claimed) is q.state(running) is State.READY
    assert q.record(running).attempts[0].ended == "interrupted"
    assert reason_of(q.finish(running, first)) == "lease_lost"
    assert q.claim(10) == [running, claimed]
    assert first < q.start(running)


def test_an_interrupted_at_most_once_task_ends_unknown_and_is_reported(q: QueueDriver) -> None:
    task_id, _ = q.run(effect="at_most_once")

    q.kill()

    assert q.state(task_id) is State.UNKNOWN
    assert q.kinds(Lane.BACKLOG) == ["task.ended"]
    assert q.claim() == []


def test_a_task_that_ends_its_agent_each_time_is_parked(q: QueueDriver) -> None:
    task_id = q.enqueue(retries=2)

    for _ in range(3):
        assert q.claim() == [task_id]
        q.start(task_id)
        q.kill()

    assert q.state(task_id) is State.DEAD
    assert q.claim() == []


def test_sessions_grow_and_the_epoch_stays(q: QueueDriver) -> None:
    epoch, session = q.store.epoch, q.store.session

    q.kill()

    assert (q.store.epoch, q.store.session) == (epoch, session + 1)
