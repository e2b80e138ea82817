"""Single rows of a damaged file, put into a store that has gone on meanwhile."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from skerry.messages import Lane
from task_queue.damage.detection import schema_shapes
from task_queue.damage.salvage_rows import Putting
from task_queue.operations import MarkInbox
from task_queue.sqlite_store import SqliteStore
from task_queue.testing import QueueDriver, sqlite_opener

BESIDE = [("other", "e", Lane.LIVE), ("c", "before", Lane.LIVE), ("c", "e", Lane.CONTROL)]


@pytest.mark.parametrize(("found", "then"), [(7, 7), (3, 5)])
def test_a_mark_that_is_found_raises_its_own_stream_and_lowers_none(
    found: int, then: int, tmp_path: Path
) -> None:
    q = QueueDriver(sqlite_opener(tmp_path))
    store = q.store
    assert isinstance(store, SqliteStore)
    q.one(MarkInbox(source="c", epoch="e", lane=Lane.LIVE, upto=5))
    for source, epoch, lane in BESIDE:
        q.one(MarkInbox(source=source, epoch=epoch, lane=lane, upto=1))
    putting = Putting(db=store._db, shapes=schema_shapes()[-1], is_interrupted=False, trimmed={})
    no_transaction: Any = None  # a mark needs none

    putting.put(no_transaction, "inbox", 0, ["c", "e", "live", found])

    assert store.inbox_mark("c", "e", Lane.LIVE) == then
    assert [store.inbox_mark(*stream) for stream in BESIDE] == [1, 1, 1]
    store.close()
