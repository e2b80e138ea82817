"""A store's way out of damage: what was noticed, the old file set aside, what is still to be brought over.

Owns when a file is given up, and the words that people read about it. Its store gives it commits.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import apsw

from skerry.clock import Instant
from skerry.errors import StorageFailed, StoreDamaged
from skerry.messages import StoreSalvaged
from task_queue.damage import quarantine, salvage_asked
from task_queue.damage.file_check import FileCheck
from task_queue.damage.recovery import OldStore, open_salvage, start_over
from task_queue.damage.salvage import Salvage
from task_queue.limits import Limits
from task_queue.operations import Operation
from task_queue.transaction import Transaction

_log = logging.getLogger(__name__)

#: A file that is damaged again so soon is not the first one's fault: the disk's, or the memory's. Seconds.
_SOON_S = 10.0
#: The whole file is gone through once in a session, and again after so many seconds.
CHECK_EVERY_S = 86400.0


class Repair:
    """Damage and salvage of one store. Everything but `suspect` belongs to the thread that commits."""

    def __init__(self, path: Path, wall_s: Callable[[], float], limits: Limits) -> None:
        """Watch over the database at path."""
        self._path = path
        self._wall_s = wall_s
        self._limits = limits
        self._salvage: Salvage | None = None
        self._rows_came: Callable[[], None] = lambda: None
        self._damage: StoreDamaged | None = None
        self._gave_up_at: Instant | None = None
        self._check: FileCheck | None = None
        self._checked_at: Instant | None = None
        self.story: StoreSalvaged | None = None  #: the latest salvage of this process, so far

    @property
    def is_under_way(self) -> bool:
        """Rows are still to be brought over, or a file is to be given up."""
        return self._salvage is not None or self._damage is not None

    @property
    def has_rest(self) -> bool:
        """Rows are still to be brought over."""
        return self._salvage is not None

    @property
    def noticed(self) -> StoreDamaged | None:
        """What a reader met, until the file is given up."""
        return self._damage

    def suspect(self, damage: StoreDamaged) -> None:
        """Take note of what a reader met; from any thread."""
        self._damage = self._damage or damage

    def check_file(self, now: Instant) -> FileCheck | None:
        """Have the whole file gone through in the background, when that was not done lately."""
        is_due = self._checked_at is None or now.since(self._checked_at) >= CHECK_EVERY_S
        if is_due and not self.is_under_way:
            self._stop_check()
            self._checked_at = now
            self._check = FileCheck(self._path, self.suspect)
        return self._check

    def _stop_check(self) -> None:
        if self._check is not None:
            self._check.stop()
            self._check = None

    def refuse_too_soon(self, why: StoreDamaged, now: Instant) -> None:
        """Raise the damage when the file before this one was given up only just now."""
        if self._gave_up_at is not None and now.since(self._gave_up_at) < _SOON_S:
            raise why

    def give_up_file(self, why: Exception, now: Instant, store: OldStore | None = None) -> None:
        """Set the file aside and put a fresh one in its place. Nobody may have it open.

        store: the open one; without it, what the file says. A file that is set aside already, and has no
        fresh one yet because the disk failed, stays the one.  Raises StorageFailed.
        """
        self.close()
        self._checked_at = None
        _log.error("the queue's database is set aside, what can be read is kept: %s", why)
        copy = quarantine.unfinished(self._path) or quarantine.set_aside(self._path, self._wall_s())
        self._gave_up_at, self._damage = now, None
        start_over(self._path, copy, wall_s=self._wall_s(), store=store)

    def finish_giving_up(self) -> None:
        """Do the rest of what a kill or a power cut interrupted."""
        copy = quarantine.unfinished(self._path)
        if copy is not None:
            start_over(self._path, copy, wall_s=self._wall_s())

    def attach(self, db: apsw.Connection, session: int, rows_came: Callable[[], None]) -> None:
        """Go on with what the open store has still to bring over, on this connection.

        rows_came: called after rows were written that operations are about, past the store's own rules.
        """
        self._rows_came = rows_came
        if self._salvage is not None:
            self._salvage.attach(db)
            return
        self._salvage = open_salvage(self._path, db, session=session)
        if self._salvage is not None:
            self.story = self._salvage.report()

    def bring(self, tx: Transaction, operations: Iterable[Operation]) -> None:
        """Have at hand what operations are about.  Raises StorageFailed when that cannot be found yet."""
        if self._salvage is not None:
            try:
                salvage_asked.bring(self._salvage, tx, operations)
            finally:
                self._rows_came()

    def bring_key(self, tx: Transaction, queue_key: str) -> bool:
        """Have every task with an ordering key at hand; False when that cannot be said yet."""
        if self._salvage is None:
            return True
        try:
            return salvage_asked.bring_key(self._salvage, tx, queue_key)
        finally:
            self._rows_came()

    def may_hold(self, task_id: str) -> bool:
        """Decide whether a task may be among what is still to be brought over."""
        return self._salvage is not None and salvage_asked.may_hold(self._salvage, task_id)

    def work(self, tx: Transaction, is_time_up: Callable[[], bool]) -> bool:
        """Bring over what time allows; True when nothing is left."""
        return self._salvage is None or self._salvage.work(tx, is_time_up)

    def keep(self) -> None:
        """The commit is on disk."""
        if self._salvage is not None:
            self._salvage.keep()
            self.story = self._salvage.report()

    def undo(self) -> None:
        """The commit is not: nothing of it was brought over."""
        if self._salvage is not None:
            self._salvage.undo()

    def finished(self) -> None:
        """Everything is brought over, durably."""
        salvage, self._salvage = self._salvage, None
        if salvage is None:
            return
        salvage.close()
        self.story = salvage.report()
        text = ", ".join(f"{table} {count}" for table, count in self.story.lost.items()) or "none"
        _log.error(
            "the queue's database %s was damaged: %d rows kept; lost: %s",
            self.story.quarantined,
            self.story.rows_kept,
            text,
        )
        quarantine.prune(self._path, limit_bytes=self._limits.max_bytes, spare=salvage.copies())

    def make_room(self, error: StorageFailed) -> bool:
        """Remove the oldest copy that is read no more, when a full disk hinders the salvage.

        False when there is none, or when it was another error.
        """
        if self._salvage is None or not isinstance(error.__cause__, apsw.FullError):
            return False
        return quarantine.remove_oldest(self._path, spare=self._salvage.copies())

    def close(self) -> None:
        """Let go of the old file; what is left to do is written in the new one."""
        self._stop_check()
        if self._salvage is not None:
            self._salvage.close()
            self._salvage = None


def is_past(moment: float) -> bool:
    """Decide whether a moment of the monotonic clock, until which a repair may work, is over."""
    return time.monotonic() >= moment
