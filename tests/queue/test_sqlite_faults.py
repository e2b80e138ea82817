"""What the file meets in its life: a full disk, failing syncs, another owner, newer versions, damage."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import apsw
import msgspec
import pytest

from skerry.errors import DirectoryInUse, StorageFailed, StoreTooNew
from skerry.lock import DirectoryLock
from skerry.messages import Lane
from skerry.sql import load_schema
from skerry.testing import a_task
from task_queue import sqlite_file
from task_queue.damage.page_size import PAGE_BYTES
from task_queue.limits import MIB, Limits
from task_queue.operations import AppendOutbox, Changed, Enqueue, Enqueued, Refused, TrimOutbox
from task_queue.task import State
from task_queue.testing import ROOMY, QueueDriver, check_invariants, reason_of, sqlite_opener
from task_queue.testing_disk import NoLoopDevice, fill, integrity, make_read_only
from task_queue.testing_disk import small_disk as small_disk_in

SMALL = Limits(ballast_bytes=2 * MIB, free_floor_bytes=1 * MIB)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 16 MiB of its own."""
    try:
        with small_disk_in(tmp_path) as mount:
            yield mount
    except NoLoopDevice as error:
        pytest.skip(str(error))


def test_on_a_full_disk_accepted_tasks_end_new_ones_are_refused_and_space_heals_it(small_disk: Path) -> None:
    q = QueueDriver(sqlite_opener(small_disk), limits=SMALL)
    accepted = [q.enqueue(argv=("echo", "x" * 2000)) for _ in range(100)]
    q.store.tidy()
    stuffing = fill(small_disk)

    refused = q.one(Enqueue(task_id=q.ids.next(), task=a_task()))
    ended = q.drain()
    q.one(TrimOutbox(lane=Lane.BACKLOG, upto=50))
    still = q.one(Enqueue(task_id=q.ids.next(), task=a_task()))
    stuffing.unlink()
    healed = q.one(Enqueue(task_id=q.ids.next(), task=a_task()))

    assert reason_of(refused) == reason_of(still) == "full"
    assert isinstance(refused, Refused)
    assert "delete something there" in refused.message
    assert ended == accepted
    assert isinstance(healed, Enqueued)
    assert (small_disk / "queue.db.ballast").stat().st_size == SMALL.ballast_bytes
    check_invariants(q.store)
    q.kill()
    check_invariants(q.store)
    assert all(q.state(task_id) is State.DONE for task_id in accepted)
    assert integrity(small_disk / "queue.db") == ["ok"]
    q.store.close()


def test_when_even_the_ballast_is_used_up_commits_fail_whole_and_the_store_goes_on(small_disk: Path) -> None:
    q = QueueDriver(sqlite_opener(small_disk), limits=SMALL)
    task_id, fence = q.run()
    stuffing = fill(small_disk)
    rows = [AppendOutbox(lane=Lane.LIVE, kind="k", body=b"1" * 30_000)] * 4

    kept = append_until_refused(q, rows)
    for _ in range(3):
        with pytest.raises(StorageFailed, match="full"):
            q.apply(*rows)
    during = q.store.depth().outbox[Lane.LIVE]
    stuffing.unlink()
    done = q.finish(task_id, fence)

    assert during == kept, "a failed commit left part of itself"
    assert done == Changed(task_id=task_id, state=State.DONE, was=State.RUNNING)
    assert q.state(task_id) is State.DONE
    check_invariants(q.store)
    assert integrity(small_disk / "queue.db") == ["ok"]
    q.store.close()


def append_until_refused(q: QueueDriver, rows: list[AppendOutbox]) -> int:
    """Append the rows again and again until the store cannot; return how many rows were kept."""
    for commit in range(1000):
        try:
            q.apply(*rows)
        except StorageFailed:
            return commit * len(rows)
    raise AssertionError("the store never got full")


def test_a_disk_that_is_full_at_the_start_opens_and_refuses(small_disk: Path) -> None:
    q = QueueDriver(sqlite_opener(small_disk), limits=SMALL)
    task_id = q.enqueue()
    q.store.close()
    (small_disk / "queue.db.ballast").unlink()
    fill(small_disk, leave_bytes=256 * 1024)

    q.kill()

    assert q.state(task_id) is State.READY
    assert reason_of(q.one(Enqueue(task_id=q.ids.next(), task=a_task()))) == "full"
    q.store.close()


def test_on_a_disk_without_a_free_byte_the_ballast_lets_the_store_open(small_disk: Path) -> None:
    q = QueueDriver(sqlite_opener(small_disk), limits=SMALL)
    task_id, _ = q.run()
    q.store.close()
    fill(small_disk)

    q.kill()
    q.drain()

    assert q.state(task_id) is State.DONE
    assert not (small_disk / "queue.db.ballast").exists()
    assert reason_of(q.one(Enqueue(task_id=q.ids.next(), task=a_task()))) == "full"
    check_invariants(q.store)
    q.store.close()


def test_a_disk_that_the_kernel_made_read_only_refuses_in_words_and_can_still_be_read(tmp_path: Path) -> None:
    try:
        with small_disk_in(tmp_path) as disk:
            q = QueueDriver(sqlite_opener(disk))
            task_id = q.enqueue()
            make_read_only(disk)

            for _ in range(3):
                with pytest.raises(StorageFailed, match="can only be read: mount its file system"):
                    q.enqueue()
                with pytest.raises(StorageFailed, match="can only be read"):
                    q.store.tidy()
                assert q.state(task_id) is State.READY
                assert q.store.depth().by_state[State.READY] == 1
            q.store.close()
    except NoLoopDevice as error:
        pytest.skip(str(error))


def test_the_queue_s_own_cap_fails_whole_commits_and_deleting_heals_it(tmp_path: Path) -> None:
    q = QueueDriver(sqlite_opener(tmp_path), limits=msgspec.structs.replace(ROOMY, max_bytes=MIB))
    row = AppendOutbox(lane=Lane.BACKLOG, kind="k", body=b"1" * 50_000)

    kept = append_until_refused(q, [row])
    counted = q.store.depth().outbox[Lane.BACKLOG]
    q.one(TrimOutbox(lane=Lane.BACKLOG, upto=kept))

    assert counted == kept
    assert q.one(row) is not None
    assert (tmp_path / "queue.db").stat().st_size <= MIB
    check_invariants(q.store)
    q.store.close()


def test_a_newer_schema_is_refused_and_the_file_left_as_it_is(tmp_path: Path) -> None:
    q = QueueDriver(sqlite_opener(tmp_path))
    q.enqueue()
    q.store.close()
    path = tmp_path / "queue.db"
    db = apsw.Connection(str(path))
    db.execute("PRAGMA user_version = 99")
    db.close()
    before = hashlib.sha256(path.read_bytes()).digest()

    with pytest.raises(StoreTooNew, match="schema version 99"):
        q.kill()

    assert hashlib.sha256(path.read_bytes()).digest() == before


def test_a_file_that_is_no_database_is_set_aside_as_it_is_and_the_queue_begins_anew(tmp_path: Path) -> None:
    (tmp_path / "queue.db").write_bytes(b"not a database " * 1000)

    q = QueueDriver(sqlite_opener(tmp_path))
    task_id = q.enqueue()

    (copy,) = (tmp_path / "quarantine").iterdir()
    assert (copy / "queue.db").read_bytes() == b"not a database " * 1000
    assert q.state(task_id) is State.READY
    q.store.close()


def test_an_empty_file_becomes_a_new_store(tmp_path: Path) -> None:
    (tmp_path / "queue.db").touch()

    q = QueueDriver(sqlite_opener(tmp_path))
    q.enqueue()

    check_invariants(q.store)
    q.store.close()


@pytest.mark.parametrize("part", ["", "-wal", "-shm"])
def test_a_folder_in_the_place_of_a_file_is_refused_before_anything_is_moved(
    tmp_path: Path, part: str
) -> None:
    q = QueueDriver(sqlite_opener(tmp_path))
    q.enqueue()
    q.store.close()
    folder = tmp_path / f"queue.db{part}"
    folder.unlink(missing_ok=True)
    folder.mkdir()
    before = sorted(tmp_path.iterdir())

    with pytest.raises(StorageFailed, match=f"{folder} is a directory"):
        sqlite_opener(tmp_path)(q.clock)

    assert sorted(tmp_path.iterdir()) == before


def test_two_processes_on_one_directory_the_second_is_refused_with_the_pid_of_the_first(
    tmp_path: Path,
) -> None:
    script = "from pathlib import Path; import sys; from skerry.lock import DirectoryLock\n"
    script += "lock = DirectoryLock(Path(sys.argv[1])); print('held', flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as first:
        assert first.stdout is not None
        assert first.stdout.readline() == "held\n"

        with pytest.raises(DirectoryInUse, match=rf"process {first.pid}\b"):
            DirectoryLock(tmp_path)
        first.kill()
        first.wait(30)

    DirectoryLock(tmp_path).release()


def test_a_store_that_was_opened_elsewhere_can_write_no_more(tmp_path: Path) -> None:
    q = QueueDriver(sqlite_opener(tmp_path))
    first = q.store
    second = sqlite_opener(tmp_path)(q.clock)

    with pytest.raises(StorageFailed, match="opened by another process"):
        first.apply([Enqueue(task_id=q.ids.next(), task=a_task())], now=q.clock.now())

    assert second.depth().by_state[State.READY] == 0
    first.close()
    second.close()


def test_a_reader_in_a_long_transaction_blocks_no_commit(tmp_path: Path) -> None:
    q = QueueDriver(sqlite_opener(tmp_path))
    q.enqueue()
    reader = sqlite_file.open_reader(tmp_path / "queue.db")
    reader.execute("BEGIN")
    seen = reader.execute("SELECT count(*) FROM task").fetchall()

    for _ in range(20):
        q.enqueue()
    q.drain()
    q.store.tidy()

    assert reader.execute("SELECT count(*) FROM task").fetchall() == seen == [(1,)]
    with pytest.raises(apsw.ReadOnlyError):
        reader.execute("DELETE FROM task")
    reader.close()
    check_invariants(q.store)
    q.store.close()


def test_the_settings_that_durability_rests_on_are_in_force(tmp_path: Path) -> None:
    db = sqlite_file.open_writer(tmp_path / "queue.db", Limits(max_bytes=MIB))
    settings = {
        name: db.pragma(name)
        for name in (
            "journal_mode",
            "synchronous",
            "auto_vacuum",
            "foreign_keys",
            "user_version",
            "max_page_count",
        )
    }
    db.close()

    assert settings == {
        "journal_mode": "wal",
        "synchronous": 2,
        "auto_vacuum": 2,
        "foreign_keys": 1,
        "user_version": len(load_schema("task_queue")),
        "max_page_count": MIB // PAGE_BYTES,
    }
    assert (tmp_path / "queue.db").stat().st_mode & 0o077 == 0
