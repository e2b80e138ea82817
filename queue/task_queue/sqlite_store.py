"""The store in SQLite: one writer, synced commits, reads beside it. Owns transactions and recovery."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Self, TypeVar

import apsw

from skerry.clock import Instant
from skerry.database import finish_journal, translated
from skerry.durable import make_directory
from skerry.errors import StorageFailed, StoreDamaged
from skerry.ids import TaskId
from skerry.messages import Lane, Row, StoreSalvaged
from task_queue import sqlite_file
from task_queue.ballast import Ballast
from task_queue.damage.detection import look
from task_queue.damage.recovery import OldStore
from task_queue.damage.repair import Repair, is_past
from task_queue.limits import Limits
from task_queue.operations import Answer, Operation
from task_queue.recurring_row import RecurringRecord
from task_queue.rows import book_of, depth_of, with_room
from task_queue.rules import is_control, perform, settle_interrupted
from task_queue.sqlite_book import SqliteBook
from task_queue.sqlite_place import Place
from task_queue.sqlite_reads import SqliteReads
from task_queue.sqlite_room import SqliteRoom
from task_queue.sqlite_tables import SqliteTables
from task_queue.store import Depth, Loss, StoryEvent, TaskFilter, TaskRecord, Waiting
from task_queue.transaction import Transaction
from task_queue.watermarks import Usage

_T = TypeVar("_T")
#: How long commits wait for rows of a damaged file: most queues are brought over whole by then. Seconds.
SALVAGE_AT_ONCE_S = 1.0
#: One slice of what is left then, between commits. Seconds.
SALVAGE_SLICE_S = 0.05


class SqliteStore:
    """A Store on one file. `apply` belongs to one thread at a time; reads may come from any."""

    def __init__(
        self, path: Path, *, wall_s: Callable[[], float], reports: bool = True, limits: Limits | None = None
    ) -> None:
        """Use SqliteStore.open, which also begins a session."""
        self._path = path
        self._wall_s = wall_s
        self._reports = reports
        self._limits = limits or Limits()
        self._leases: set[int] = set()
        self._own = SqliteBook(path)
        self._now = Instant(boot_id="", uptime_s=0.0)  #: of the latest commit
        self._is_closed = False
        self._is_in_doubt = False  #: a write or sync failed: what the file holds must be read again
        self._room = SqliteRoom(path, self._limits)
        self._sent: dict[Lane, int] = {}  #: rows up to there may be on their way
        self._repair = Repair(path, wall_s, self._limits)
        self._connect()

    @classmethod
    def open(
        cls,
        path: Path,
        *,
        now: Instant,
        wall_s: Callable[[], float],
        reports: bool = True,
        limits: Limits | None = None,
    ) -> Self:
        """Open or create the database, begin a session and settle what the last one left running.

        The caller holds the directory's lock.  reports: whether ends of this node's own tasks are reported.
        Raises StoreTooNew (the file is left as it is) and StorageFailed.
        """
        make_directory(path.parent)
        sqlite_file.refuse_folders(path)
        try:
            return cls._open_whole(path, now, wall_s, reports, limits)
        except StorageFailed:
            if not Ballast(path, limits or Limits()).give_up(for_control=True):
                raise
            return cls._open_whole(path, now, wall_s, reports, limits)

    @classmethod
    def _open_whole(
        cls, path: Path, now: Instant, wall_s: Callable[[], float], reports: bool, limits: Limits | None
    ) -> Self:
        """Open the file, or a fresh one in its place that takes over what can be read of it."""
        repair = Repair(path, wall_s, limits or Limits())
        try:
            with translated(path):
                repair.finish_giving_up()
                finish_journal(path)
            sqlite_file.refuse_without_index_room(path)
            look(path, (limits or Limits()).synchronous)
            return cls._begin(path, now, wall_s, reports, limits)
        except StoreDamaged as damage:
            with translated(path):
                repair.give_up_file(damage, now)
        return cls._begin(path, now, wall_s, reports, limits)

    @classmethod
    def _begin(
        cls, path: Path, now: Instant, wall_s: Callable[[], float], reports: bool, limits: Limits | None
    ) -> Self:
        store = cls(path, wall_s=wall_s, reports=reports, limits=limits)
        try:
            store._begin_session(now)
        except BaseException:
            store._let_go()
            raise
        return store

    def _connect(self) -> None:
        self._db = sqlite_file.open_writer(self._path, self._limits)
        try:
            self._tables = SqliteTables(self._db)
            self._own.attach(self._db)
            self._reads = SqliteReads(self._path, self._leases, self._repair.suspect)
            self._place = Place(self._path)
            self._room.attach(self._db)
            if self._own.session:
                self._repair.attach(self._db, self._own.session, self._tables.forget_newest)
        except BaseException:
            sqlite_file.let_go(self._db)
            raise

    def _begin_session(self, now: Instant) -> None:
        self._own.begin_session()
        self._repair.attach(self._db, self._own.session, self._tables.forget_newest)
        self._bring_over(now, SALVAGE_AT_ONCE_S)
        self._commit(settle_interrupted, now, is_opening=True)

    @property
    def epoch(self) -> str:
        """See Store."""
        return self._own.epoch

    @property
    def session(self) -> int:
        """See Store."""
        return self._own.session

    def apply(self, operations: Sequence[Operation], *, now: Instant) -> list[Answer]:
        """See Store."""
        if self._repair.noticed is not None:
            self._start_over(self._repair.noticed, now)
        try:
            return self._apply(operations, now)
        except StoreDamaged as damage:  # it will not get better: nothing is tried again on this file
            self._start_over(damage, now)
        return self._apply(operations, now)

    def _apply(self, operations: Sequence[Operation], now: Instant) -> list[Answer]:
        may_use_reserve = is_control(operations)

        def work(tx: Transaction) -> list[Answer]:
            self._repair.bring(tx, operations)
            answers = perform(tx, operations)
            if self._tables.is_dirty and not may_use_reserve:
                self._room.leave_some_for_control()
            return answers

        self._room.shorten_log(now)
        try:
            return self._commit(work, now, operations=len(operations))
        except StorageFailed as error:
            if not self._room.win_back(error, for_control=may_use_reserve):
                raise
        return self._commit(work, now)

    def _commit(
        self,
        work: Callable[[Transaction], _T],
        now: Instant,
        *,
        operations: int | None = None,
        is_opening: bool = False,
    ) -> _T:
        """Run work in one transaction; when it fails, memory and file are as they were.

        operations: how many; None when it may write any amount.
        """
        if self._is_in_doubt:
            self._reconnect()
        if self._place.is_due(now) and self._place.stay(self._db):
            self._reconnect()
        self._room.begin(now, operations)
        self._now = now
        before = set(self._leases)
        attempted: tuple[_T, set[int], bytes] | None = None
        try:
            with translated(self._path):
                self._db.execute("BEGIN IMMEDIATE")
                tx = self._transaction(now)
                result = work(tx)
                saved = self._own.save(tx.on_s, now, has_changed=self._tables.is_dirty or is_opening)
                attempted = result, set(self._leases), saved
                self._db.execute("COMMIT")
        except BaseException as error:
            self._undo(before)
            if not isinstance(error.__cause__, apsw.IOError):
                raise
            self._is_in_doubt = True
            self._reconnect()
            if attempted is None or attempted[2] != self._own.saved:
                raise
            result, leases, saved = attempted  # it was kept, though its sync was reported as failed
            self._hold(leases)
        self._own.saved = saved
        self._repair.keep()
        return result

    def _transaction(self, now: Instant) -> Transaction:
        self._tables.is_dirty = False
        tx = Transaction(
            tables=self._tables,
            book=self._own.book,
            leases=self._leases,
            on_s=self._own.book.powered_on_s(now),
            wall_s=self._wall_s(),
            limits=self._limits,
            reports=self._reports,
            measure=self._room.measure,
            epoch=self._own.epoch,
            was_short=self._room.is_short,
            sent=self._sent,
        )
        if self._repair.has_rest:
            tx.have = lambda operation: self._repair.bring(tx, (operation,))
            tx.has_whole_key = partial(self._repair.bring_key, tx)
        return tx

    def _undo(self, leases: set[int]) -> None:
        """Go back to before the transaction."""
        self._hold(leases)
        self._tables.read_anew()
        if self._db.in_transaction:  # on a full disk SQLite has rolled back by itself
            with suppress(apsw.Error):
                self._db.execute("ROLLBACK")
        self._repair.undo()
        self._own.undo()

    def _hold(self, leases: set[int]) -> None:
        self._leases.clear()
        self._leases.update(leases)

    def _reconnect(self) -> None:
        """Reopen the file and believe what it says, once that is synced: a failed sync leaves it open.

        Where it cannot be written any more, it can still be read.
        """
        with translated(self._path):
            self._reads.close()
            self._db.close()  # writes the log into the file, unless the disk refuses that too
            self._repair.finish_giving_up()
        try:
            self._connect()
        except StorageFailed:
            self._reads = SqliteReads(self._path, self._leases, self._repair.suspect)
            raise
        with translated(self._path):
            sqlite_file.checkpoint(self._db)
        self._is_in_doubt = False

    def _start_over(self, damage: StoreDamaged, now: Instant) -> None:
        """Give up the file, go on with a fresh one, and bring over what can be read."""
        self._repair.refuse_too_soon(damage, now)
        self._let_go()
        self._is_in_doubt = True  # until there is another file
        with translated(self._path):
            store = OldStore(book_of(self._own.saved), self._own.session, self._own.epoch)
            self._repair.give_up_file(damage, now, store)
        self._connect()
        self._is_in_doubt = False
        self._bring_over(now, SALVAGE_AT_ONCE_S)

    def _bring_over(self, now: Instant, for_s: float) -> None:
        """Bring over rows of a file that was given up, for about so long."""
        until = time.monotonic() + for_s
        while self._repair.has_rest:
            is_time_up = partial(is_past, min(until, time.monotonic() + SALVAGE_SLICE_S))
            try:
                is_over = self._commit(partial(self._repair.work, is_time_up=is_time_up), now)
            except StorageFailed as error:
                if not self._repair.make_room(error):
                    raise
                continue
            if is_over:
                self._repair.finished()
                self._repair.attach(self._db, self._own.session, self._tables.forget_newest)
                self._leases.intersection_update(self._tables.still_ready(self._leases))
            self._tables.read_anew()
            if is_past(until):
                return

    def _let_go(self) -> None:
        self._reads.close()
        sqlite_file.let_go(self._db)

    @property
    def salvaged(self) -> StoreSalvaged | None:
        """See Store."""
        return self._repair.story

    def get(self, task_id: TaskId) -> TaskRecord | None:
        """See Store."""
        found = self._reads.get(task_id)
        if found is None and self._repair.may_hold(task_id):
            raise StorageFailed("the queue's database was damaged: this task is being brought back from it")
        return found

    def story(self, task_id: TaskId) -> tuple[StoryEvent, ...]:
        """See Store."""
        return self._reads.story(task_id)

    def find(self, task_filter: TaskFilter) -> list[TaskRecord]:
        """See Store."""
        return self._reads.find(task_filter)

    def outbox(self, lane: Lane, after: int, *, limit: int, limit_bytes: int) -> list[Row]:
        """See Store."""
        after = max(after, self._own.book.trimmed.get(lane, 0))
        return self._reads.outbox(lane, after, limit=limit, limit_bytes=limit_bytes)

    def note_sent(self, lane: Lane, upto: int) -> None:
        """See Store."""
        self._sent[lane] = max(upto, self._sent.get(lane, 0))

    def inbox_mark(self, source: str, epoch: str, lane: Lane) -> int:
        """See Store."""
        return self._reads.inbox_mark(source, epoch, lane)

    def recurring(self, *, now: Instant) -> list[RecurringRecord]:
        """See Store."""
        return self._reads.recurring(self._own.committed().powered_on_s(now))

    def meta(self, name: str) -> Any:
        """See Store."""
        return self._reads.meta(name)

    def depth(self) -> Depth:
        """See Store."""
        book = self._own.committed()
        usage = self.usage()
        depth = depth_of(book, len(self._leases), usage.used_bytes)
        return with_room(depth, usage, self._limits)

    def waiting(self) -> Waiting:
        """See Store."""
        return self._reads.waiting()

    def losses(self) -> list[Loss]:
        """See Store."""
        return self._reads.losses()

    def usage(self) -> Usage:
        """See Store."""
        return self._reads.usage(self._room.spare_bytes())

    def held_placements(self, limit: int = 5000) -> list[TaskId]:
        """See Store."""
        return self._reads.held_placements(limit)

    def tidy(self) -> bool:
        """See Store."""
        if self._repair.noticed is not None:
            self._start_over(self._repair.noticed, self._now)
        if self._repair.is_under_way:
            try:
                self._bring_over(self._now, SALVAGE_SLICE_S)
            except StoreDamaged as damage:  # the fresh file: no commit of a producer need ever meet it
                self._repair.suspect(damage)
                raise
            return self._repair.is_under_way
        if self._is_in_doubt or self._place.stay(self._db):
            self._reconnect()
        with translated(self._path):
            sqlite_file.tidy(self._db)
        self._repair.check_file(self._now)
        return False

    def suspect(self, damage: StoreDamaged) -> None:
        """Take note of damage that was found from outside; the next tidy() deals with it. From any thread."""
        self._repair.suspect(damage)

    def close(self) -> None:
        """See Store. A second call does nothing."""
        if not self._is_closed:
            self._is_closed = True
            self._repair.close()
            self._reads.close()
            self._db.close()
