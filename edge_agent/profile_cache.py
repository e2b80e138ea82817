"""Measured run times kept over a restart, in sqlitedict with JSON values. Losing them costs accuracy only."""

from __future__ import annotations

import logging
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from policy.profile import Measured, RuntimeProfile

log = logging.getLogger(__name__)

_KEY = "measured"


class ProfileCache:
    """Reads the profile at start and writes it now and then; every failure is only logged."""

    def __init__(self, path: Path) -> None:
        """path: the cache's own database, beside the queue's."""
        self._path = path
        self._saved = 0

    def load(self, profile: RuntimeProfile) -> None:
        """Fill the profile with what was measured before."""
        if not self._path.exists():
            return
        import sqlite3  # costs a node that has measured nothing yet 1 MB

        try:
            with self._open() as cache:
                profile.load(msgspec.convert(cache.get(_KEY, []), type=list[Measured]))
        except (sqlite3.Error, OSError, RuntimeError, msgspec.MsgspecError) as error:
            log.warning("the run times measured before cannot be read and are measured anew: %s", error)
            with suppress(OSError):  # the next save will say what hinders it
                self._path.unlink(missing_ok=True)

    def save(self, profile: RuntimeProfile, measured: int) -> None:
        """Write the profile. measured: grows with each measurement; nothing is written when it has not."""
        if measured == self._saved:
            return
        import sqlite3

        try:
            with self._open() as cache:
                cache[_KEY] = msgspec.to_builtins(profile.dump())
                cache.commit(blocking=True)
            self._saved = measured
        except (sqlite3.Error, OSError, RuntimeError) as error:
            log.warning("the measured run times were not kept: %s", error)

    def _open(self) -> Any:
        if self._path.is_dir():  # sqlitedict would end a thread with a traceback
            raise IsADirectoryError(f"{self._path} is a directory: move it away")
        from sqlitedict import SqliteDict  # imported when used: it starts a thread

        return SqliteDict(
            str(self._path), encode=_encode, decode=msgspec.json.decode, journal_mode="WAL", outer_stack=False
        )


def _encode(value: Any) -> str:
    return msgspec.json.encode(value).decode()
