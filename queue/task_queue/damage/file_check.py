"""The full check of a database, in the background: one table after the other, on a connection of its own.

It holds up no commit: it only reads, it rests as long as it works, and it lets go of the log when that grows.
Owns how far it has come; knows nothing of what is done about damage.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path

import apsw

from skerry.database import open_read_only, translated
from skerry.errors import QueueError, StoreDamaged
from task_queue.sqlite_file import log_bytes

log = logging.getLogger(__name__)

#: The check works for so long, then it rests for as long. Seconds.
_TURN_S = 0.02
#: Steps of SQLite between two looks at the clock.
_STEPS = 2000
#: A table is begun again later when the log, which cannot be emptied meanwhile, has grown by this. Bytes.
_LOG_GROWTH = 8 * 1024 * 1024
#: Up to this size a file is checked whole, with its free pages and pointer map. Bytes.
_SMALL_BYTES = 64 * 1024 * 1024
_EVERYTHING = ""


class FileCheck:
    """One pass over a file on a thread of its own."""

    def __init__(self, path: Path, on_damage: Callable[[StoreDamaged], None]) -> None:
        """Begin. on_damage: called from the thread, at most once."""
        self._path = path
        self._on_damage = on_damage
        self._is_stopping = False
        self._turn_ends_s = 0.0
        self._log_limit = 0
        self.tables: list[str] = []  #: found whole
        self._thread = threading.Thread(target=self._run, name="store-check", daemon=True)
        self._thread.start()

    @property
    def is_over(self) -> bool:
        """It has seen everything, found damage, or was stopped."""
        return not self._thread.is_alive()

    def stop(self) -> None:
        """End it; returns when its connection is closed."""
        self._is_stopping = True
        self._thread.join()

    def wait(self, timeout_s: float) -> bool:
        """Wait for its end; False when it goes on."""
        self._thread.join(timeout_s)
        return self.is_over

    def _run(self) -> None:
        try:
            with translated(self._path):
                self._check()
        except StoreDamaged as damage:
            if not self._is_stopping:
                self._on_damage(damage)
        except QueueError as error:
            log.warning("the check of the queue's database was not finished: %s", error)

    def _check(self) -> None:
        for table in self._names():
            while not self._is_stopping and table not in self.tables:
                if self._check_table(table):
                    self.tables.append(table)

    def _names(self) -> list[str]:
        """Return what is checked in one go each: all of a file that is small, else its tables one by one."""
        if self._path.stat().st_size <= _SMALL_BYTES:
            return [_EVERYTHING]
        db = open_read_only(self._path)
        try:
            found = db.execute(
                "SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY rootpage"
            ).fetchall()
            return ["sqlite_schema", *(str(name) for (name,) in found)]
        finally:
            db.close()

    def _check_table(self, table: str) -> bool:
        """Check a table with its indexes; False when it must be begun again."""
        db = _open(self._path)
        try:
            self._turn_ends_s = time.monotonic() + _TURN_S
            self._log_limit = log_bytes(self._path) + _LOG_GROWTH
            db.set_progress_handler(self._rest, _STEPS)
            which = f"('{table}')" if table else ""
            found = db.execute(f"PRAGMA integrity_check{which}").fetchall()
        except apsw.InterruptError:
            return False
        finally:
            db.close()
        wrong = [str(line) for (line,) in found if line != "ok"]
        if wrong:
            raise StoreDamaged(f"{self._path} {table}: {'; '.join(wrong[:3])}", path=self._path)
        return True

    def _rest(self) -> bool:
        """Rest when the turn is over; True ends the check of this table."""
        if time.monotonic() >= self._turn_ends_s:
            time.sleep(_TURN_S)  # beside work that is waited for, this is not
            self._turn_ends_s = time.monotonic() + _TURN_S
        return self._is_stopping or log_bytes(self._path) > self._log_limit


def _open(path: Path) -> apsw.Connection:
    """Return a connection that only reads, but could write: else SQLite leaves the CHECK constraints out."""
    db = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
    db.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
    db.execute("PRAGMA query_only = ON").fetchall()
    return db
