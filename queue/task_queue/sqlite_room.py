"""Room on the disk for one open database: measured, kept for the control lane, won back from a long log.

Small commits go by what was measured before them while room is ample: measuring took a tenth of their time.
Knows neither tables nor rules; what a measure means is said by watermarks.
"""

from __future__ import annotations

from pathlib import Path

import apsw

from skerry.clock import Instant
from skerry.database import translated
from skerry.errors import StorageFailed
from task_queue import sqlite_file
from task_queue.ballast import Ballast
from task_queue.limits import (
    COMMIT_BYTES,
    FEW_OPERATIONS,
    LOG_RETRY_S,
    LOOK_AGAIN_BYTES,
    LOOK_EVERY_S,
    Limits,
)
from task_queue.sqlite_index import LogIndex
from task_queue.watermarks import Level, Usage, is_ample, level, why_only_control


class SqliteRoom:
    """The room of one database. is_short: it was so when last measured."""

    def __init__(self, path: Path, limits: Limits) -> None:
        """Make the ballast, as far as there is room for it."""
        self._path = path
        self._limits = limits
        self._ballast = Ballast(path, limits)
        self._log_tried_s = 0.0  #: when the log was last looked at, uptime
        self._now_s = 0.0  #: of the commit under way, uptime
        self._is_small = False  #: that commit
        self._recalled: Usage | None = None  #: by which it goes, without measuring
        self._ample: Usage | None = None  #: the latest measure, when room was ample
        self._measured_s = 0.0  #: uptime
        self._measured_bytes = 0  #: had been written by then
        self.is_short = False

    def attach(self, db: apsw.Connection) -> None:
        """Measure this connection's file from here on."""
        self._db = db
        self._gauge = sqlite_file.Gauge(db, self._path)
        with translated(self._path):
            self._index = LogIndex(self._path, sqlite_file.page_size(db))
            self._index.hold(self._limits.max_log_bytes + COMMIT_BYTES)
        self._index_upto_bytes = 0
        # A cap that was lowered below what the file holds must not keep that from ending.
        self._recalled = None
        held_bytes = self.measure().used_bytes + self._limits.max_bytes // 10
        self._accepted_bytes = max(self._limits.accepted_bytes, held_bytes)

    def spare_bytes(self) -> int:
        """Return what may still be written on the file system beside the ballast."""
        return self._ballast.spare_bytes()

    def begin(self, now: Instant, operations: int | None) -> None:
        """Decide whether a commit of so many operations (None: of any size) goes by an earlier measure."""
        self._now_s = now.uptime_s
        written_bytes = self._gauge.written_bytes()
        if written_bytes >= self._index_upto_bytes:
            self._hold_index(written_bytes)
        self._is_small = operations is not None and operations <= FEW_OPERATIONS
        is_new = (
            0.0 <= now.uptime_s - self._measured_s < LOOK_EVERY_S
            and written_bytes - self._measured_bytes < LOOK_AGAIN_BYTES
        )
        self._recalled = self._ample if self._is_small and is_new else None

    def _hold_index(self, written_bytes: int) -> None:
        """Keep the log shorter than what its index has blocks for.  Raises StorageFailed when that fails."""
        index, log_bytes = self._index, self._gauge.log_bytes()
        with translated(self._path):
            is_held = log_bytes + COMMIT_BYTES <= index.held_bytes or index.hold(log_bytes + 2 * COMMIT_BYTES)
        if not is_held and log_bytes > index.held_bytes // 2:
            self._empty_log()
            log_bytes = self._gauge.log_bytes()
            if log_bytes > index.held_bytes // 2:
                raise StorageFailed(
                    f"{self._path}: the disk is full, and another program reads the database in one long "
                    "transaction, so that its log cannot be emptied: free some space, or end that program",
                    path=self._path,
                )
        self._index_upto_bytes = written_bytes + max(0, index.held_bytes - COMMIT_BYTES - log_bytes)

    def measure(self) -> Usage:
        """Return what is taken of the disk, which a small commit measures once while room is ample.

        Ballast given up before is taken back when there is room.
        """
        if self._recalled is not None:
            return self._recalled
        self._ballast.restore()
        usage = self._gauge.usage(self._ballast.spare_bytes())
        self._measured_s, self._measured_bytes = self._now_s, self._gauge.written_bytes()
        self._ample = usage if self._ballast.is_whole and is_ample(usage, self._limits) else None
        self._recalled = self._ample if self._is_small else None
        self.is_short = level(usage, self._limits) >= Level.SLOWED
        return usage

    def leave_some_for_control(self) -> None:
        """Raise StorageFailed when this commit would take what is reserved for the control lane."""
        if self._recalled is not None:
            return
        why = self._ballast.why_spent() or why_only_control(
            self.measure(), self._limits, self._accepted_bytes
        )
        if why:
            self.is_short = True
            raise StorageFailed(f"{self._path}: {why}", path=self._path)

    def win_back(self, error: StorageFailed, *, for_control: bool) -> bool:
        """Give ballast up when a commit failed for a full file system; say whether it may work now."""
        is_full = isinstance(error.__cause__, apsw.FullError)
        if not (is_full and self._ballast.give_up(for_control=for_control)):
            return False
        self._empty_log()
        return True

    def shorten_log(self, now: Instant) -> None:
        """Empty a write-ahead log that has grown long, as soon as no reader needs it any more."""
        if self._log_tried_s <= now.uptime_s < self._log_tried_s + LOG_RETRY_S:
            return
        self._log_tried_s = now.uptime_s
        if self._gauge.log_bytes() > self._limits.max_log_bytes // 4:
            self._empty_log()

    def _empty_log(self) -> None:
        with translated(self._path):
            sqlite_file.checkpoint(self._db)
