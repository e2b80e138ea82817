"""Looking at a queue's file from outside: what it holds, whether it is whole. Reads only, beside any owner.

Every question uses a connection of its own and short transactions, so that it holds up nobody.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import apsw
import msgspec

from skerry.clock import Instant
from skerry.database import pragma, translated
from skerry.errors import StorageFailed, StoreDamaged, StoreTooNew
from skerry.lock import is_owned
from skerry.sql import load_schema
from task_queue.damage.file_check import FileCheck
from task_queue.queries import PACKAGE, statements
from task_queue.recurring_row import RecurringRecord
from task_queue.rows import Book, depth_of
from task_queue.sqlite_file import open_reader
from task_queue.sqlite_reads import SqliteReads
from task_queue.store import Depth, Loss, TaskFilter, TaskRecord, Waiting
from task_queue.task import State
from task_queue.watermarks import Usage

#: Findings of a check that are told; a file that is badly damaged has no end of them.
FINDINGS_LIMIT = 20
#: A check beside an owner's work ends after this, seconds.
CHECK_LIMIT_S = 3600.0


class Checked(msgspec.Struct, frozen=True, kw_only=True):
    """What a check found; no findings: the file is whole.

    rows: tasks that were counted; damage: what the owner of the store must deal with.
    """

    findings: tuple[str, ...]
    rows: int = 0
    damage: StoreDamaged | None = None


class StoppedQueue:
    """The queue of an agent that does not run, read without changing it. The same questions as at a Store."""

    def __init__(self, path: Path) -> None:
        """Open it.  Raises StorageFailed when there is none or it cannot be read, StoreTooNew."""
        if not path.is_file():
            raise StorageFailed(f"there is no queue at {path}", path=path)
        self._path = path
        self._is_still = is_still(path)
        self.schema = _schema_of(path, is_still=self._is_still)
        self._reads = SqliteReads(path, set(), is_still=self._is_still)
        try:
            self.epoch, self._book = self._owner()
        except BaseException:
            self._reads.close()
            raise

    def _owner(self) -> tuple[str, Book]:
        with translated(self._path), _reading(self._path, is_still=self._is_still) as db:
            return _store_row(db)

    def depth(self) -> Depth:
        """Return the counters."""
        return depth_of(self._book, 0, self._reads.bytes_in_use())

    def losses(self) -> list[Loss]:
        """Return the loss ledger."""
        return self._reads.losses()

    def usage(self) -> Usage:
        """Return what is taken of the disk."""
        stat = os.statvfs(self._path.parent)
        return self._reads.usage(stat.f_bavail * stat.f_frsize)

    def waiting(self) -> Waiting:
        """Return what is ready."""
        return self._reads.waiting()

    def find(self, task_filter: TaskFilter) -> list[TaskRecord]:
        """Return tasks, newest first."""
        return self._reads.find(task_filter)

    def recurring(self, *, now: Instant) -> list[RecurringRecord]:
        """Return the recurring tasks."""
        return self._reads.recurring(self._book.powered_on_s(now))

    def meta(self, name: str) -> object:
        """Return a value kept by name."""
        return self._reads.meta(name)

    def close(self) -> None:
        """Close the connection."""
        self._reads.close()


def is_still(path: Path) -> bool:
    """Decide whether nobody writes a queue: its directory has no owner, and its log holds nothing."""
    log = path.with_name(path.name + "-wal")
    return not is_owned(path.parent) and (not log.exists() or log.stat().st_size == 0)


def _schema_of(path: Path, *, is_still: bool) -> int:
    """Return the file's schema version.  Raises StoreTooNew, and StorageFailed for an older one."""
    with translated(path), _reading(path, is_still=is_still) as db:
        version = pragma(db, "user_version")
    known = schema_known()
    if version > known:
        raise StoreTooNew(
            f"{path} has schema version {version}, this program knows {known}: install the newer version "
            "that wrote it",
            path=path,
            version=version,
        )
    if version < known:
        raise StorageFailed(
            f"{path} has schema version {version}, this program reads {known}: the agent brings it up to "
            "date when it starts",
            path=path,
        )
    return version


def schema_known() -> int:
    """Return the schema version of this program's queue."""
    return len(load_schema(PACKAGE))


def check_in_use(path: Path) -> Checked:
    """Check a file whose owner works on it: in turns, letting go of the write-ahead log when that grows."""
    found: list[StoreDamaged] = []
    check = FileCheck(path, found.append)
    is_over = check.wait(CHECK_LIMIT_S)
    check.stop()
    if found:
        return Checked(findings=(str(found[0]),), damage=found[0])
    if not is_over or not check.tables:
        return Checked(findings=("the check was not finished: it could not read the file in time",))
    with translated(path):
        rows, miscounted = _check_counters(path, is_still=False)
    return Checked(findings=tuple(miscounted[:FINDINGS_LIMIT]), rows=rows)


def check_file(path: Path) -> Checked:
    """Check the file of an owner that does not run: every table with its indexes, then the counters.

    Nothing is written, and it may lie on a medium that cannot be written. SQLite leaves the CHECK constraints
    out then (it reads them only where it could write): FileCheck, in the agent, looks at them.
    Raises StorageFailed when the file cannot be opened at all.
    """
    findings: list[str] = []
    still = is_still(path)
    with translated(path):
        with _reading(path, is_still=still) as db:
            names = [name for (name,) in db.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
        for name in names:
            findings += _check_table(path, name, FINDINGS_LIMIT - len(findings), is_still=still)
        rows, miscounted = (0, []) if findings else _check_counters(path, is_still=still)
    return Checked(findings=tuple([*findings, *miscounted][:FINDINGS_LIMIT]), rows=rows)


def _check_table(path: Path, name: str, limit: int, *, is_still: bool) -> list[str]:
    if limit <= 0:
        return []
    with _reading(path, is_still=is_still) as db:
        try:
            found = db.execute(f"PRAGMA integrity_check('{name}')")
            return [f"table {name}: {line}" for (line,) in found if line != "ok"][:limit]
        except apsw.CorruptError as error:
            return [f"table {name}: {error}"]


def _check_counters(path: Path, *, is_still: bool) -> tuple[int, list[str]]:
    """Count every task and message, in one transaction with the book that says how many there are."""
    sql = statements()
    with _reading(path, is_still=is_still) as db:
        db.execute("BEGIN")
        book = _store_row(db)[1]
        states = {State(state): count for state, count in db.execute(sql["count_states"])}
        lanes = {str(lane): count for lane, count in db.execute(sql["count_outbox"])}
    wrong = [
        f"{state}: {states.get(state, 0)} tasks, the counters say {book.by_state.get(state, 0)}"
        for state in State
        if states.get(state, 0) != book.by_state.get(state, 0)
    ]
    wrong += [
        f"outbox {lane.value}: {lanes.get(lane.value, 0)} messages, the counters say {count}"
        for lane, count in book.outbox.items()
        if lanes.get(lane.value, 0) != count
    ]
    return sum(states.values()), wrong


def _store_row(db: apsw.Connection) -> tuple[str, Book]:
    ((epoch, _session, book),) = db.execute(statements()["store"]).fetchall()
    return str(epoch), msgspec.json.decode(str(book).encode(), type=Book)


@contextmanager
def _reading(path: Path, *, is_still: bool) -> Iterator[apsw.Connection]:
    db = open_reader(path, is_still=is_still)
    try:
        yield db
    finally:
        db.close()
