"""What is asked for while the rows of a damaged file are still to come is answered as if all were there.

Every slice of the salvage is as short as can be here, so that nearly everything is asked for before its turn.
"""

from __future__ import annotations

from pathlib import Path

import apsw
import msgspec
import pytest

from skerry.errors import StorageFailed
from skerry.fence import Fence
from skerry.ids import TaskId
from skerry.messages import Lane
from skerry.recurring import RecurringSpec
from skerry.task import RUN_KEY
from skerry.testing import a_task
from task_queue.operations import (
    Advance,
    Answer,
    Cancel,
    CountLoss,
    Enqueue,
    Enqueued,
    Finish,
    MarkInbox,
    Operation,
    PutMeta,
    PutRecurring,
)
from task_queue.store import TaskFilter
from task_queue.task import State
from task_queue.testing import (
    ROOMY,
    SUCCEEDED,
    QueueDriver,
    check_invariants,
    ended_rows,
    place,
    sqlite_opener,
)
from tests.queue.broken_queue import damage_now, finish_salvage

FORGETFUL = msgspec.structs.replace(ROOMY, keep_ended=0)

pytestmark = pytest.mark.usefixtures("slow")


def ask(q: QueueDriver, op: Operation) -> Answer | None:
    """Return the answer, None when it is to be asked again later."""
    try:
        return q.one(op)
    except StorageFailed:
        return None


def enqueue_again(q: QueueDriver, number: int) -> Enqueue:
    """Return the request that brought the task of this number, once more."""
    return Enqueue(task_id=q.ids.next(), task=a_task(idempotency_key=f"k{number}"))


def forget_all(q: QueueDriver) -> None:
    """Let every ended task be forgotten: what is remembered of it stays."""
    q.clock.advance(1.0)
    while q.store.find(TaskFilter(limit=1000)):
        q.one(Advance())


def damage_twice(q: QueueDriver, *, between: int = 1, after: int = 3) -> None:
    """Have the file given up a second time while rows of the first come, so that both have some left."""
    damage_now(q)
    for _ in range(between):
        q.store.tidy()
    damage_now(q)
    for _ in range(after):
        q.store.tidy()


def test_a_key_that_is_only_remembered_is_not_accepted_again(tmp_path: Path) -> None:
    q = QueueDriver(sqlite_opener(tmp_path), limits=FORGETFUL)
    ids = [q.enqueue(idempotency_key=f"k{n}") for n in range(300)]
    q.drain()
    forget_all(q)
    damage_now(q)

    answers = {n: ask(q, enqueue_again(q, n)) for n in (5, 150, 299)}
    finish_salvage(q)

    assert all(a in (None, Enqueued(task_id=ids[n], is_new=False)) for n, a in answers.items()), answers
    assert q.drain() == []
    q.store.close()


def test_a_placed_task_that_is_only_remembered_does_not_run_again(tmp_path: Path) -> None:
    q = QueueDriver(sqlite_opener(tmp_path), limits=FORGETFUL)
    ids = [q.ids.next() for _ in range(300)]
    for task_id in ids:
        place(q, task_id, Fence((1, 1)))
    q.drain()
    forget_all(q)
    damage_now(q)

    for task_id in ids[::50]:
        place(q, task_id, Fence((1, 2)))
    finish_salvage(q)

    assert q.drain() == []
    q.store.close()


def test_a_task_that_ends_while_rows_come_is_not_marked_as_lost(tmp_path: Path) -> None:
    q = QueueDriver(sqlite_opener(tmp_path), limits=msgspec.structs.replace(ROOMY, keep_ended=10))
    ids = [q.enqueue(idempotency_key=f"k{n}") for n in range(60)]
    damage_now(q)

    ran = []
    is_on = True
    while is_on:
        is_on = q.store.tidy()
        ran += q.drain()
        q.clock.advance(1.0)
        q.one(Advance())
    q.clock.advance(1.0)

    assert sorted(ran) == sorted(ids)
    assert not q.store.find(TaskFilter(states=(State.UNKNOWN,), limit=1000))
    for number, task_id in enumerate(ids):
        assert q.one(enqueue_again(q, number)) == Enqueued(task_id=task_id, is_new=False)
    check_invariants(q.store)
    q.store.close()


@pytest.mark.parametrize("by", ["cancel", "finish", "expire"])
def test_an_ordering_key_keeps_its_order_when_an_end_meets_the_half_of_it(tmp_path: Path, by: str) -> None:
    q = QueueDriver(sqlite_opener(tmp_path))
    first = q.enqueue(ordering_key="o")
    fence = q.start(q.claim()[0]) if by == "finish" else Fence((1, 1))
    ids = [first, *(q.enqueue(ordering_key="o") for _ in range(20))]
    for _ in range(200):
        q.enqueue()
    ids.append(q.enqueue(ordering_key="o"))
    last = q.enqueue(ordering_key="o", expires_after_s=70.0 if by == "expire" else None)
    ids.append(last)
    damage_now(q)
    while not q.store.find(TaskFilter(limit=1)):  # until the page of the newest tasks has come
        assert q.store.tidy()

    match by:
        case "cancel":
            q.one(Cancel(task_id=last))
        case "finish":
            q.one(Finish(task_id=first, fence=fence, outcome=SUCCEEDED))
        case _:
            q.clock.advance(100.0)
            q.one(Advance())
    ran = q.drain()
    finish_salvage(q)
    ran += q.drain(window=1)

    check_invariants(q.store)
    order = [task_id for task_id in ran if task_id in ids]
    assert order == [task_id for task_id in ids if task_id in order]
    q.store.close()


def test_a_run_that_has_not_ended_keeps_the_next_one_of_its_recurring_task_back(tmp_path: Path) -> None:
    q = QueueDriver(sqlite_opener(tmp_path))
    every = RecurringSpec(name="often", task=a_task(), every_s=30.0)
    q.one(PutRecurring(recurring_id=q.ids.next(), spec=every))
    q.clock.advance(30.0)
    q.one(Advance())
    (running,) = q.claim(1)
    q.start(running)
    for _ in range(300):
        q.enqueue()
    damage_now(q)

    q.one(Advance())

    finish_salvage(q)
    keys = [record.task.idempotency_key or "" for record in q.store.find(TaskFilter(limit=1000))]
    assert sum(key.startswith(RUN_KEY) for key in keys) == 1
    assert q.state(running) is State.RUNNING
    q.store.close()


def test_the_end_of_a_task_placed_again_is_told_as_it_was(tmp_path: Path) -> None:
    q = QueueDriver(sqlite_opener(tmp_path))
    ids = [q.ids.next() for _ in range(50)]
    for task_id in ids:
        place(q, task_id, Fence((1, 1)))
    q.drain()
    damage_now(q)

    place(q, ids[4], Fence((1, 2)))

    told = [each for each in ended_rows(q, Lane.LIVE) if each.task_id == ids[4]]
    assert told[-1].outcome.status == "succeeded"
    q.store.close()


def test_a_story_leaves_with_its_task(tmp_path: Path) -> None:
    q = QueueDriver(sqlite_opener(tmp_path), limits=FORGETFUL)
    for _ in range(60):
        q.enqueue()
    q.drain()
    damage_now(q)

    while q.store.tidy():
        q.clock.advance(1.0)
        q.one(Advance())
    q.clock.advance(1.0)
    q.one(Advance())

    assert not q.store.find(TaskFilter(limit=1000))
    q.store.close()
    db = apsw.Connection(str(tmp_path / "queue.db"))
    assert db.execute("SELECT count(*) FROM event").fetchall() == [(0,)]
    db.close()


# --- what was written anew meanwhile


def test_the_totals_of_losses_are_added_to_those_counted_meanwhile(tmp_path: Path) -> None:
    q = QueueDriver(sqlite_opener(tmp_path))
    old = {("task", "x"): 100, ("task", "y"): 10, ("telemetry", "x"): 20}
    for (lost_class, reason), rows in old.items():
        q.one(CountLoss(lost_class=lost_class, reason=reason, rows=rows))
    for _ in range(100):
        q.enqueue()
    damage_now(q)

    for lost_class, reason in old:
        q.one(CountLoss(lost_class=lost_class, reason=reason, rows=1))
    finish_salvage(q)

    totals = {(each.lost_class, each.reason): each.rows for each in q.store.losses()}
    assert totals == {key: rows + 1 for key, rows in old.items()}
    q.store.close()


def test_a_value_that_was_written_anew_stays_and_is_not_said_to_be_lost(tmp_path: Path) -> None:
    q = QueueDriver(sqlite_opener(tmp_path))
    q.one(PutMeta(name="a", value=1))
    q.one(MarkInbox(source="c", epoch="e", lane=Lane.LIVE, upto=5))
    q.enqueue()
    damage_now(q)

    q.one(PutMeta(name="a", value=2))
    q.one(MarkInbox(source="c", epoch="e", lane=Lane.LIVE, upto=7))
    finish_salvage(q)

    assert q.store.meta("a") == 2
    assert q.store.inbox_mark("c", "e", Lane.LIVE) == 7
    assert q.store.salvaged is not None
    assert q.store.salvaged.rows_lost == 0, q.store.salvaged
    q.store.close()


# --- while rows of two damaged files are to come


def keyed_tasks(q: QueueDriver) -> list[TaskId]:
    return [q.enqueue(idempotency_key=f"k{n}") for n in range(200)]


def test_a_key_in_the_older_of_two_files_is_not_accepted_again(tmp_path: Path) -> None:
    q = QueueDriver(sqlite_opener(tmp_path))
    ids = keyed_tasks(q)
    ended = q.claim(50)
    for task_id in ended:
        q.finish(task_id, q.start(task_id))
    damage_twice(q, between=8, after=1)

    answers = {n: ask(q, enqueue_again(q, n)) for n in (3, 30, 100)}
    finish_salvage(q)

    assert all(a in (None, Enqueued(task_id=ids[n], is_new=False)) for n, a in answers.items()), answers
    assert sorted(q.drain()) == sorted(set(ids) - set(ended))
    q.store.close()


def test_an_attempt_in_the_older_of_two_files_can_end(tmp_path: Path) -> None:
    q = QueueDriver(sqlite_opener(tmp_path))
    task_id, fence = q.run()
    for _ in range(100):
        q.enqueue()
    damage_twice(q)

    finish = Finish(task_id=task_id, fence=fence, outcome=SUCCEEDED)
    answer = ask(q, finish)
    finish_salvage(q)
    answer = answer or q.one(finish)

    assert q.state(task_id) is State.DONE, answer
    q.store.close()


def test_a_cancel_of_a_task_in_the_older_of_two_files_holds(tmp_path: Path) -> None:
    q = QueueDriver(sqlite_opener(tmp_path))
    ids = keyed_tasks(q)
    damage_twice(q)

    answer = ask(q, Cancel(task_id=ids[3]))
    finish_salvage(q)
    answer = answer or q.one(Cancel(task_id=ids[3]))

    assert q.state(ids[3]) is State.CANCELLED, answer
    q.store.close()


def test_a_task_in_the_older_of_two_files_is_not_said_to_be_missing(tmp_path: Path) -> None:
    q = QueueDriver(sqlite_opener(tmp_path))
    ids = keyed_tasks(q)
    damage_twice(q, after=1)

    with pytest.raises(StorageFailed, match="brought back"):
        q.store.get(ids[3])

    q.store.close()
