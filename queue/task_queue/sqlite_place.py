"""Whether the open database is still the file at its path. Owns noticing and putting back a removed one.

A file that was removed under an open connection takes commits as before and vanishes with the process. It is
put back with everything that was acknowledged, as long as the process lives: lost is only what was removed
less than LOOK_EVERY_S before the process dies. (Looking with each commit took a tenth of its time.) Knows
nothing of tables.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path

import apsw

from skerry.clock import Instant
from skerry.database import translated
from skerry.durable import sync
from skerry.errors import StorageFailed
from task_queue.limits import LOOK_EVERY_S

_Identity = tuple[int, int]
_log = logging.getLogger(__name__)


class Place:
    """Where an open database lies: the file and its write-ahead log, as they were when it was opened."""

    def __init__(self, path: Path) -> None:
        """Remember both files. Call it when the connection has written something."""
        self._path = path
        self._files = (str(path), f"{path}-wal")
        self._opened = tuple(_identity(name) for name in self._files)
        self._looked_s: float | None = None

    def is_due(self, now: Instant) -> bool:
        """Decide whether a commit should look, and take note that it does."""
        if self._looked_s is not None and 0.0 <= now.uptime_s - self._looked_s < LOOK_EVERY_S:
            return False
        self._looked_s = now.uptime_s
        return True

    def stay(self, db: apsw.Connection) -> bool:
        """Put a file that was removed from under us back, before anything more is promised.

        Returns whether that was so: connections must then be closed and opened anew.
        Raises StorageFailed when it cannot be put back, or another file stands in its place.
        """
        lacking = self._lacks()
        if not lacking:
            return False
        with translated(self._path):
            self._put_back(db)
        _log.error("%s in %s had been removed: put back, nothing is lost", lacking, self._path.parent)
        return True

    def _lacks(self) -> tuple[str, ...]:
        """Return the names of the files that are gone, none when all is as it was.

        Raises StorageFailed when another file stands in the place of one: nothing may be written over it.
        """
        lacking: list[str] = []
        for name, then in zip(self._files, self._opened, strict=True):
            now = _identity(name)
            if now == then or then is None:
                continue
            if now is not None:
                raise StorageFailed(
                    f"{name} was replaced by another file while it was in use: nothing more is written to "
                    "it; put the right one in place and restart the agent"
                )
            lacking.append(os.path.basename(name))
        return tuple(lacking)

    def _put_back(self, db: apsw.Connection) -> None:
        """Write the database that db still holds open to its path again, durably."""
        if _identity(str(self._path)) is not None:
            return  # only the log is gone: closing the last connection writes it into the file
        copy = self._path.with_name(self._path.name + ".rescue")
        for leftover in copy.parent.glob(copy.name + "*"):
            leftover.unlink()
        _copy(db, copy)
        copy.chmod(0o600)
        sync(copy)
        copy.rename(self._path)
        sync(self._path.parent)


def _copy(db: apsw.Connection, path: Path) -> None:
    target = apsw.Connection(str(path))
    try:
        with target.backup("main", db, "main") as backup:
            backup.step(-1)
    finally:
        target.close()


def _identity(path: str) -> _Identity | None:
    try:
        stat = os.stat(path)
    except OSError:
        return None
    return (stat.st_dev, stat.st_ino)
