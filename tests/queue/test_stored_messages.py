"""Messages in the outbox: short as they are stored, whole as they are read."""

from __future__ import annotations

from pathlib import Path

import apsw
import msgspec
import pytest

from skerry.fence import Fence
from skerry.messages import Lane, Outcome, TaskEnded, row_of
from task_queue.messages import with_head, without_head
from task_queue.testing import QueueDriver, sqlite_opener

KEY = "01a22ecfc0b851aa6b67b16215f98715"


def test_what_kind_and_key_say_is_not_stored_again() -> None:
    kind, body = row_of(
        TaskEnded(task_id=KEY, task_kind="x", fence=Fence(), outcome=Outcome(status="succeeded"))
    )

    stored = without_head(kind, KEY, body)

    assert len(stored) < len(body) - len(kind) - len(KEY)
    assert with_head(kind, KEY, stored) == body


@pytest.mark.parametrize("key", ["", "store", "another", '"', "\u00e9"])
@pytest.mark.parametrize(
    "body",
    [
        b"{}",
        b"[1]",
        b'"x"',
        b'{"kind":"a.kind"}',
        b'{"kind":"a.kind","n":1}',
        b'{"kind":"a.kind","task_id":"store"}',
        b'{"kind":"a.kind","task_id":"store","n":1}',
        '{"kind":"a.kind","task_id":"\u00e9","n":1}'.encode(),
    ],
)
def test_every_document_is_read_as_it_was_queued(key: str, body: bytes) -> None:
    assert with_head("a.kind", key, without_head("a.kind", key, body)) == body


def test_a_message_that_an_earlier_version_stored_whole_is_read_on(tmp_path: Path) -> None:
    q = QueueDriver(sqlite_opener(tmp_path))
    task_id, fence = q.run()
    q.finish(task_id, fence)
    (row,) = q.store.outbox(Lane.BACKLOG, 0, limit=10, limit_bytes=10_000)
    q.store.close()
    db = apsw.Connection(str(tmp_path / "queue.db"))
    db.execute("UPDATE outbox SET body = ?", (bytes(row.body),))
    db.close()
    q.kill()

    (again,) = q.store.outbox(Lane.BACKLOG, 0, limit=10, limit_bytes=10_000)

    assert again == row
    assert msgspec.json.decode(again.body)["task_id"] == task_id
    q.store.close()
