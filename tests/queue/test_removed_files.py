"""A database whose files are removed or replaced while it is open: what was acknowledged is still there."""

from __future__ import annotations

from pathlib import Path

import pytest

from skerry.errors import StorageFailed
from skerry.testing import a_task
from task_queue.limits import LOOK_EVERY_S
from task_queue.operations import Enqueue
from task_queue.task import State
from task_queue.testing import QueueDriver, check_invariants, sqlite_opener

FILES = ("queue.db", "queue.db-wal", "queue.db-shm")


@pytest.mark.parametrize(
    "removed", [FILES, ("queue.db",), ("queue.db-wal",), ("queue.db-wal", "queue.db-shm")], ids=" ".join
)
@pytest.mark.parametrize("notices", ["commit", "tidy"])
def test_removed_files_are_put_back_and_nothing_acknowledged_is_lost(
    tmp_path: Path, removed: tuple[str, ...], notices: str
) -> None:
    q = QueueDriver(sqlite_opener(tmp_path))
    before, fence = q.run()
    for name in removed:
        (tmp_path / name).unlink()
    q.clock.advance(LOOK_EVERY_S)

    if notices == "tidy":
        q.store.tidy()
    after = q.enqueue()
    q.finish(before, fence)
    at_disk = sqlite_opener(tmp_path)(q.clock)  # what the next process finds if this one dies now

    assert (q.state(before), q.state(after)) == (State.DONE, State.READY)
    for task_id, state in ((before, State.DONE), (after, State.READY)):
        record = at_disk.get(task_id)
        assert record is not None
        assert record.state is state
    check_invariants(at_disk)
    at_disk.close()
    q.store.close()
    assert {path.name for path in tmp_path.iterdir()} - {"queue.db.ballast", "queue.db.reserve"} == {
        "queue.db"
    }


def test_what_was_committed_before_the_removal_was_noticed_is_put_back_too(tmp_path: Path) -> None:
    q = QueueDriver(sqlite_opener(tmp_path))
    q.enqueue()
    for name in FILES:
        (tmp_path / name).unlink()

    unnoticed = q.enqueue()
    is_back_at_once = (tmp_path / "queue.db").exists()
    q.store.tidy()
    at_disk = sqlite_opener(tmp_path)(q.clock)

    assert not is_back_at_once
    assert at_disk.get(unnoticed) is not None
    at_disk.close()
    q.store.close()


def test_a_file_that_was_replaced_is_not_written_over(tmp_path: Path) -> None:
    q = QueueDriver(sqlite_opener(tmp_path))
    q.enqueue()
    (tmp_path / "queue.db").rename(tmp_path / "aside")
    (tmp_path / "queue.db").write_bytes(b"someone else's")
    q.clock.advance(LOOK_EVERY_S)

    with pytest.raises(StorageFailed, match="replaced by another file"):
        q.apply(Enqueue(task_id=q.ids.next(), task=a_task()))

    assert (tmp_path / "queue.db").read_bytes() == b"someone else's"
    q.store.close()


def test_a_removed_directory_refuses_what_it_cannot_keep(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    q = QueueDriver(sqlite_opener(home))
    home.rename(tmp_path / "elsewhere")
    q.clock.advance(LOOK_EVERY_S)

    with pytest.raises(StorageFailed):
        q.apply(Enqueue(task_id=q.ids.next(), task=a_task()))
    (tmp_path / "elsewhere").rename(home)
    task_id = q.enqueue()

    assert q.state(task_id) is State.READY
    q.store.close()
