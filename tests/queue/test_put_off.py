"""Writes that are put off until something looks: their order, and what they meet in the file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import apsw
import msgspec
import pytest

from skerry.errors import InvalidTransition
from skerry.messages import Lane, Outcome
from skerry.testing import a_task
from task_queue.operations import (
    Advance,
    Changed,
    Claim,
    Claimed,
    Enqueue,
    Finish,
    Start,
    Started,
    TrimOutbox,
)
from task_queue.task import State
from task_queue.testing import ROOMY, OpenStore, QueueDriver, check_invariants, memory_opener, sqlite_opener

DONE = Outcome(status="succeeded")


def opener(adapter: str, tmp_path: Path) -> OpenStore:
    return sqlite_opener(tmp_path) if adapter == "sqlite" else memory_opener()


@pytest.mark.parametrize("adapter", ["sqlite", "memory"])
def test_a_task_moves_twice_in_the_commit_that_ends_another(adapter: str, tmp_path: Path) -> None:
    q = QueueDriver(opener(adapter, tmp_path))
    first, fence = q.run()
    second = q.enqueue()
    q.claim()

    ended, started, claimed = q.apply(
        Finish(task_id=first, fence=fence, outcome=DONE),
        Start(task_id=second, device="cpu-0"),
        Claim(limit=1),
    )
    third = q.enqueue()
    q.claim()
    answers = q.apply(
        Start(task_id=third, device="cpu-0"),
        Finish(task_id=second, fence=started.fence, outcome=DONE),  # type: ignore[union-attr]
        Finish(task_id=third, fence=fence, outcome=DONE),  # the first attempt's, of this one too
    )

    assert isinstance(ended, Changed)
    assert isinstance(started, Started)
    assert isinstance(claimed, Claimed)
    assert [type(answer) for answer in answers] == [Started, Changed, Changed]
    assert {q.state(task_id) for task_id in (first, second, third)} == {State.DONE}
    check_invariants(q.store)


def test_of_a_commit_that_meets_a_strangers_change_nothing_is_kept(tmp_path: Path) -> None:
    q = QueueDriver(sqlite_opener(tmp_path))
    (mine, fence), (changed, its_fence) = q.run(), q.run()
    (path,) = tmp_path.glob("**/queue.db")
    stranger = apsw.Connection(str(path))
    stranger.execute("UPDATE task SET state = 'ready' WHERE task_id = ?", (bytes.fromhex(changed),))
    stranger.close()
    first = Finish(task_id=mine, fence=fence, outcome=DONE)
    second = Finish(task_id=changed, fence=its_fence, outcome=DONE)

    with pytest.raises(InvalidTransition, match="succeeded is not allowed"):
        q.apply(first, second)

    assert (q.state(mine), q.state(changed)) == (State.RUNNING, State.READY)
    assert isinstance(q.one(first), Changed)
    assert q.state(mine) is State.DONE


@pytest.mark.parametrize("adapter", ["sqlite", "memory"])
@pytest.mark.parametrize("left", [0, 1])
def test_a_trim_takes_what_is_acknowledged_and_no_more(adapter: str, left: int, tmp_path: Path) -> None:
    q = QueueDriver(opener(adapter, tmp_path))
    for _ in range(10):
        q.finish(*q.run())

    q.one(TrimOutbox(lane=Lane.BACKLOG, upto=10 - left))

    assert len(q.kinds(Lane.BACKLOG)) == q.store.depth().outbox[Lane.BACKLOG] == left
    q.finish(*q.run())
    rows = q.store.outbox(Lane.BACKLOG, 0, limit=9, limit_bytes=9999)
    assert [row.seq for row in rows] == ([10, 11] if left else [11])
    check_invariants(q.store)


def test_of_tasks_that_are_forgotten_in_a_busy_commit_nothing_is_left(tmp_path: Path) -> None:
    q = QueueDriver(sqlite_opener(tmp_path), limits=msgspec.structs.replace(ROOMY, keep_ended=2))
    for _ in range(5):
        q.finish(*q.run())
    last, fence = q.run()
    q.clock.advance(1.0)

    q.apply(Advance(), Finish(task_id=last, fence=fence, outcome=DONE), a_submission(q))

    (path,) = tmp_path.glob("**/queue.db")
    db = apsw.Connection(str(path))
    tasks: list[tuple[Any, ...]] = db.execute("SELECT seq, events FROM task").fetchall()
    bodies = db.execute("SELECT seq FROM body").fetchall()
    ((events,),) = db.execute("SELECT count(*) FROM event").fetchall()
    db.close()
    assert len(tasks) == 2 + 2
    assert bodies == [(seq,) for seq, _ in tasks]
    assert events == sum(count for _, count in tasks) == 2 * 3
    check_invariants(q.store)


def a_submission(q: QueueDriver) -> Enqueue:
    return Enqueue(task_id=q.ids.next(), task=a_task())
