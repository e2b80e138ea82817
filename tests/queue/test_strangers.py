"""A stranger's `sqlite3` shell on the live file: it reads, holds on, locks, checkpoints; the queue goes on.

The shell is the system's, with a library of its own, in a process of its own.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from skerry import database
from skerry.errors import StorageFailed
from skerry.ids import TaskId
from task_queue import sqlite_file
from task_queue.sqlite_store import SqliteStore
from task_queue.testing import QueueDriver, check_invariants, sqlite_opener
from task_queue.testing_disk import integrity

#: The same questions for a machine without the shell: the library that comes with Python.
_STAND_IN = """
import sqlite3, sys
db = sqlite3.connect(sys.argv[1], isolation_level=None)
for line in sys.stdin:
    try:
        for row in db.execute(line):
            print("|".join(map(str, row)), flush=True)
    except sqlite3.Error as error:
        print(f"Error: {error}", flush=True)
"""


class Shell:
    """A shell that stays open on the file."""

    def __init__(self, path: Path) -> None:
        shell = shutil.which("sqlite3")
        command = [shell, str(path)] if shell else [sys.executable, "-c", _STAND_IN, str(path)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        self.asks("PRAGMA busy_timeout = 0;")

    def asks(self, statement: str) -> list[str]:
        """Run one statement and return its lines."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{statement}\nSELECT 'that was all';\n")
        self._process.stdin.flush()
        lines = iter(self._process.stdout.readline, "that was all\n")
        return [line.rstrip("\n") for line in lines]

    def leave(self) -> None:
        """End it as Ctrl-D does; a second call does nothing."""
        if self._process.poll() is None:
            self._process.communicate(timeout=30)

    def is_killed(self) -> None:
        """End it in the middle of what it does."""
        self._process.kill()
        self._process.communicate(timeout=30)


@pytest.fixture
def queue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[QueueDriver]:
    for module in (database, sqlite_file):
        monkeypatch.setattr(module, "BUSY_TIMEOUT_MS", 50)  # for a stranger that never lets go
    queue = QueueDriver(sqlite_opener(tmp_path))
    yield queue
    check_invariants(queue.store)
    queue.store.close()
    assert integrity(tmp_path / "queue.db") == ["ok"]


@pytest.fixture
def shell(queue: QueueDriver, tmp_path: Path) -> Iterator[Shell]:
    shell = Shell(tmp_path / "queue.db")
    yield shell
    shell.leave()


def held(queue: QueueDriver, task_ids: list[TaskId]) -> bool:
    return all(queue.store.get(task_id) is not None for task_id in task_ids)


def test_a_stranger_that_reads_sees_the_queue_and_disturbs_nothing(queue: QueueDriver, shell: Shell) -> None:
    before = [queue.enqueue() for _ in range(3)]

    count = shell.asks("SELECT count(*) FROM task;")
    after = queue.enqueue()

    assert count == ["3"]
    assert queue.drain() == [*before, after]


def test_a_stranger_that_keeps_a_read_transaction_open_holds_up_no_commit(
    queue: QueueDriver, shell: Shell
) -> None:
    queue.enqueue()
    shell.asks("BEGIN;")
    seen = shell.asks("SELECT count(*) FROM task;")

    task_ids = [queue.enqueue() for _ in range(200)]
    queue.store.tidy()
    queue.drain()

    assert shell.asks("SELECT count(*) FROM task;") == seen == ["1"]
    shell.asks("COMMIT;")
    queue.store.tidy()
    assert held(queue, task_ids)


def test_a_stranger_that_holds_the_write_lock_has_commits_refused_and_nothing_is_lost(
    queue: QueueDriver, shell: Shell
) -> None:
    before = queue.enqueue()
    shell.asks("BEGIN IMMEDIATE;")

    with pytest.raises(StorageFailed, match=r"locked|busy"):
        queue.enqueue()
    assert queue.store.get(before) is not None, "reads go on"
    shell.asks("COMMIT;")
    after = queue.enqueue()

    assert queue.drain() == [before, after]


def test_a_stranger_that_is_killed_with_the_write_lock_lets_go_of_it(
    queue: QueueDriver, shell: Shell
) -> None:
    shell.asks("BEGIN IMMEDIATE;")
    shell.asks("INSERT INTO meta (name, value) VALUES ('stranger', x'31');")
    shell.is_killed()

    task_id = queue.enqueue()

    assert queue.store.meta("stranger") is None
    assert queue.drain() == [task_id]


@pytest.mark.parametrize("mode", ["PASSIVE", "FULL", "RESTART", "TRUNCATE"])
def test_a_stranger_that_checkpoints_between_commits_takes_nothing(
    queue: QueueDriver, shell: Shell, mode: str
) -> None:
    task_ids: list[TaskId] = []

    for _ in range(20):
        task_ids += [queue.enqueue() for _ in range(5)]
        shell.asks(f"PRAGMA wal_checkpoint({mode});")
        queue.drain()

    assert held(queue, task_ids)


def test_a_stranger_that_comes_last_and_leaves_finds_nothing_to_break(
    queue: QueueDriver, shell: Shell, tmp_path: Path
) -> None:
    task_id = queue.enqueue()
    queue.store.close()

    shell.asks("PRAGMA wal_checkpoint(TRUNCATE);")
    shell.leave()
    queue.kill()

    assert queue.store.get(task_id) is not None
    assert isinstance(queue.store, SqliteStore)
