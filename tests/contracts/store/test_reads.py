"""The store's contract, listing, refusals beside work, forgetting."""

from __future__ import annotations

import msgspec

from skerry.testing import a_task
from task_queue.operations import (
    Advance,
    Enqueue,
    Finish,
)
from task_queue.store import TaskFilter
from task_queue.task import State
from task_queue.testing import (
    ROOMY,
    SUCCEEDED,
    OpenStore,
    QueueDriver,
    check_invariants,
    reason_of,
)


def test_tasks_are_listed_newest_first_by_state_and_kind_in_pages(q: QueueDriver) -> None:
    ids = [q.enqueue(kind="a" if n % 2 else "b") for n in range(6)]
    q.claim(2)

    def listed(**fields: object) -> list[str]:
        return [record.task_id for record in q.store.find(TaskFilter(**fields))]  # type: ignore[arg-type]

    assert listed() == ids[::-1]
    assert listed(limit=2) == [ids[5], ids[4]]
    assert listed(limit=2, before=ids[4]) == [ids[3], ids[2]]
    assert listed(kind="a") == [ids[5], ids[3], ids[1]]
    assert listed(states=(State.LEASED,)) == [ids[1], ids[0]]
    assert listed(states=(State.READY,), kind="b") == [ids[4], ids[2]]
    assert listed(states=(State.DONE,)) == []


def test_a_refusal_changes_nothing_and_lets_the_rest_of_the_commit_stand(q: QueueDriver) -> None:
    task_id, fence = q.run()
    other = q.ids.next()

    answers = q.apply(
        Finish(task_id=task_id, fence=fence.with_attempt(9), outcome=SUCCEEDED),
        Enqueue(task_id=other, task=a_task()),
    )

    assert reason_of(answers[0]) == "fenced"
    assert q.state(task_id) is State.RUNNING
    assert q.state(other) is State.READY


def test_ended_tasks_are_forgotten_by_count_and_by_age(opener: OpenStore) -> None:
    limits = msgspec.structs.replace(ROOMY, keep_ended=3, keep_ended_s=100.0)
    q = QueueDriver(opener, limits=limits)
    ids = []
    for _ in range(5):
        task_id, fence = q.run()
        q.finish(task_id, fence)
        q.clock.advance(1)
        ids.append(task_id)

    q.one(Advance())
    by_count = [task_id for task_id in ids if q.store.get(task_id) is not None]
    q.clock.advance(99)
    q.one(Advance())
    by_age = [task_id for task_id in ids if q.store.get(task_id) is not None]

    assert by_count == ids[2:]
    assert by_age == ids[4:]
    check_invariants(q.store)
