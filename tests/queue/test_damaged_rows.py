"""Rows that cannot be read any more: each ends by itself, and the others go on."""

from __future__ import annotations

from pathlib import Path

import apsw
import msgspec
import pytest

from skerry.task import CommandSpec, TaskSpec
from task_queue.operations import Advance
from task_queue.rows import packed_spec, readable_spec_of
from task_queue.seals import seal
from task_queue.store import TaskFilter
from task_queue.task import State
from task_queue.testing import ROOMY, QueueDriver, check_invariants, sqlite_opener


@pytest.mark.parametrize(
    "body", [b"{", b"", b"\xff", b"[" * 5000, b'{"spec": {"executor": "of-tomorrow"}}'], ids=range(5)
)
def test_a_task_that_cannot_be_read_ends_with_the_reason_and_the_others_run(
    tmp_path: Path, body: bytes
) -> None:
    q = QueueDriver(sqlite_opener(tmp_path))
    bad, good = q.enqueue(kind="detect/x"), q.enqueue()
    q.store.close()
    db = apsw.Connection(str(tmp_path / "queue.db"))
    db.execute("UPDATE body SET body = ? WHERE seq = 1", (body,))
    db.close()
    q.kill()

    claimed = q.claim()
    q.finish(good, q.start(good))

    assert claimed == [good]
    assert (q.state(bad), q.state(good)) == (State.DEAD, State.DONE)
    record = q.record(bad)
    assert record.outcome is not None
    assert "damaged" in record.outcome.error
    assert record.task.kind == "detect/x"
    assert len(q.store.find(TaskFilter())) == 2
    check_invariants(q.store)
    q.store.close()


def test_a_body_in_the_form_of_earlier_versions_is_read_on(tmp_path: Path) -> None:
    q = QueueDriver(sqlite_opener(tmp_path))
    old = q.enqueue(kind="detect/x")
    q.store.close()
    db = apsw.Connection(str(tmp_path / "queue.db"))
    text = b'{"spec":{"executor":"command","argv":["as-before"]},"kind":"detect/x"}'
    db.execute("UPDATE body SET body = ? WHERE seq = 1", (seal(text),))
    db.close()
    q.kill()

    claimed = q.claim()

    assert claimed == [old]
    assert q.record(old).task == TaskSpec(spec=CommandSpec(argv=("as-before",)), kind="detect/x")
    q.store.close()


def test_no_flipped_bit_in_a_body_is_believed() -> None:
    body = packed_spec(TaskSpec(spec=CommandSpec(argv=("true", "x" * 20)), kind="detect/x"))
    flipped = [
        bytes(byte ^ (1 << bit) if at == place else byte for at, byte in enumerate(body))
        for place in range(len(body))
        for bit in range(8)
    ]

    assert readable_spec_of(body) is not None
    assert [each for each in flipped if readable_spec_of(each) is not None] == []


def test_an_outcome_and_a_decision_that_cannot_be_read_hide_nothing_else(tmp_path: Path) -> None:
    q = QueueDriver(sqlite_opener(tmp_path))
    task_id, fence = q.run()
    q.finish(task_id, fence)
    q.store.close()
    db = apsw.Connection(str(tmp_path / "queue.db"))
    db.execute("UPDATE event SET detail = x'7b'")
    db.close()
    q.kill()

    record = q.record(task_id)

    assert record.state is State.DONE
    assert record.outcome is not None
    assert "damaged" in record.outcome.error
    assert record.decision is None
    q.store.close()


def test_a_story_that_goes_round_in_a_circle_is_read_once_and_forgotten(tmp_path: Path) -> None:
    q = QueueDriver(sqlite_opener(tmp_path), limits=msgspec.structs.replace(ROOMY, keep_ended=0))
    task_id, fence = q.run()
    q.finish(task_id, fence)
    q.store.close()
    db = apsw.Connection(str(tmp_path / "queue.db"))
    db.execute("UPDATE event SET prev = (SELECT max(id) FROM event) WHERE id = (SELECT min(id) FROM event)")
    db.close()
    q.kill()

    words = [each.what for each in q.store.story(task_id)]
    q.clock.advance(1)
    q.one(Advance())

    assert words == ["accepted", "started", "succeeded"]
    assert q.store.get(task_id) is None
    check_invariants(q.store)
    q.store.close()
