"""The store's contract, filters of the list of tasks."""

from __future__ import annotations

from typing import Any

import pytest

from skerry.testing import a_task
from task_queue.operations import Enqueue
from task_queue.store import TaskFilter
from task_queue.task import State
from task_queue.testing import QueueDriver


def listed(q: QueueDriver, **fields: Any) -> list[str]:
    return [record.task_id for record in q.store.find(TaskFilter(**fields))]


def accepted(q: QueueDriver, wall_s: float, **fields: Any) -> str:
    task_id = q.ids.next()
    q.one(Enqueue(task_id=task_id, task=a_task(**fields), wall_s=wall_s))
    return task_id


def test_by_priority(q: QueueDriver) -> None:
    ids = [q.enqueue(priority=number % 3) for number in range(6)]

    assert listed(q, priority=2) == [ids[5], ids[2]]
    assert listed(q, priority=9) == []


def test_by_time_of_acceptance_from_then_on_and_before_then(q: QueueDriver) -> None:
    ids = [accepted(q, 1000.0 + number) for number in range(5)]

    assert listed(q, since_s=1003.0) == [ids[4], ids[3]]
    assert listed(q, until_s=1002.0) == [ids[1], ids[0]]
    assert listed(q, since_s=1001.0, until_s=1003.0) == [ids[2], ids[1]]


def test_by_ordering_key_of_one_tenant(q: QueueDriver) -> None:
    mine = q.enqueue(ordering_key="camera", tenant="a")
    q.enqueue(ordering_key="camera", tenant="b")
    second = q.enqueue(ordering_key="camera", tenant="a")

    assert listed(q, tenant="a", ordering_key="camera") == [second, mine]
    assert listed(q, tenant="a", ordering_key="camera", states=(State.BLOCKED,)) == [second]
    assert listed(q, ordering_key="camera") == []


def test_by_idempotency_key(q: QueueDriver) -> None:
    mine = q.enqueue(idempotency_key="order-7", tenant="a")
    q.enqueue(idempotency_key="order-7", tenant="b")

    assert listed(q, tenant="a", idempotency_key="order-7") == [mine]
    assert listed(q, tenant="a", idempotency_key="order-8") == []


@pytest.mark.parametrize("limit", [1, 2, 50])
def test_pages_of_a_filtered_list_leave_nothing_out_and_repeat_nothing(q: QueueDriver, limit: int) -> None:
    wanted = [q.enqueue(priority=1 if number % 2 else 0) for number in range(9)][1::2]
    seen: list[str] = []
    before = None
    while page := listed(q, priority=1, limit=limit, before=before):
        seen += page
        before = page[-1]

    assert seen == wanted[::-1]
