"""The store's contract, what is accepted, recognised and refused."""

from __future__ import annotations

import msgspec

from skerry.messages import Lane
from skerry.testing import a_task
from task_queue.limits import Limits
from task_queue.operations import (
    Advance,
    Enqueue,
    Enqueued,
    Refused,
    TrimOutbox,
)
from task_queue.task import State
from task_queue.testing import (
    ROOMY,
    OpenStore,
    QueueDriver,
    check_invariants,
    reason_of,
)


def test_an_accepted_task_can_be_read_back(q: QueueDriver) -> None:
    task = a_task(("echo", "hello"), kind="greet", tenant="lab", deadline_s=5.0)
    task_id = q.ids.next()

    answer = q.one(Enqueue(task_id=task_id, task=task, wall_s=12.0))

    record = q.record(task_id)
    assert answer == Enqueued(task_id=task_id)
    assert (record.task, record.state, record.attempt, record.accepted_wall_s) == (task, State.READY, 0, 12.0)


def test_an_idempotency_key_is_known_within_its_tenant_only(q: QueueDriver) -> None:
    first = q.enqueue(idempotency_key="order-1", tenant="a")

    again = q.one(Enqueue(task_id=q.ids.next(), task=a_task(idempotency_key="order-1", tenant="a")))
    elsewhere = q.one(Enqueue(task_id=q.ids.next(), task=a_task(idempotency_key="order-1", tenant="b")))

    assert again == Enqueued(task_id=first, is_new=False)
    assert isinstance(elsewhere, Enqueued)
    assert elsewhere.is_new


def test_an_idempotency_key_is_known_within_one_commit_and_after_the_end(q: QueueDriver) -> None:
    ids = [q.ids.next() for _ in range(3)]
    task = a_task(idempotency_key="k")

    first, second = q.apply(*(Enqueue(task_id=task_id, task=task) for task_id in ids[:2]))
    q.claim()
    q.finish(ids[0], q.start(ids[0]))
    third = q.one(Enqueue(task_id=ids[2], task=task))

    assert first == Enqueued(task_id=ids[0])
    assert second == third == Enqueued(task_id=ids[0], is_new=False)


def test_the_same_id_twice_is_one_task(q: QueueDriver) -> None:
    task_id = q.enqueue()

    answer = q.one(Enqueue(task_id=task_id, task=a_task()))

    assert answer == Enqueued(task_id=task_id, is_new=False)
    assert q.store.depth().by_state[State.READY] == 1


def test_a_task_above_the_document_limit_is_refused(opener: OpenStore) -> None:
    q = QueueDriver(opener, limits=msgspec.structs.replace(ROOMY, max_document_bytes=1000))

    answer = q.one(Enqueue(task_id=q.ids.next(), task=a_task(("echo", "x" * 1000))))

    assert reason_of(answer) == "too_large"
    check_invariants(q.store)


def test_a_full_queue_refuses_tasks_while_accepted_ones_end(opener: OpenStore) -> None:
    limits = Limits(max_bytes=1024 * 1024, ballast_bytes=0, free_floor_bytes=0)
    q = QueueDriver(opener, limits=limits)
    accepted, refused = [], None
    while refused is None:
        answer = q.one(Enqueue(task_id=q.ids.next(), task=a_task(("echo", "x" * 8000))))
        refused = answer if isinstance(answer, Refused) else None
        if isinstance(answer, Enqueued):
            accepted.append(answer.task_id)

    claimed = q.claim(20)
    for task_id in claimed:
        q.finish(task_id, q.start(task_id))

    assert refused.reason == "full"
    assert "raise the queue's limit" in refused.message
    assert len(accepted) > 50
    assert claimed == accepted[:20]
    assert all(q.state(task_id) is State.DONE for task_id in claimed)
    assert q.store.depth().bytes_used <= limits.max_bytes
    check_invariants(q.store)


def a_large_task(q: QueueDriver) -> Enqueue:
    return Enqueue(task_id=q.ids.next(), task=a_task(("echo", "x" * 8000)))


def test_ended_tasks_make_room_when_space_is_short(opener: OpenStore) -> None:
    q = QueueDriver(opener, limits=Limits(max_bytes=1024 * 1024, ballast_bytes=0, free_floor_bytes=0))

    def fill_and_drain() -> int:
        count = 0
        while all(isinstance(answer, Enqueued) for answer in q.apply(*(a_large_task(q) for _ in range(10)))):
            count += 10
        q.drain()
        q.clock.advance(1)
        q.apply(Advance(), TrimOutbox(lane=Lane.BACKLOG, upto=1 << 40))
        return count

    rounds = [fill_and_drain() for _ in range(4)]

    assert min(rounds[1:]) > rounds[0] * 3 // 4, f"each round must find room again: {rounds}"
    check_invariants(q.store)
