"""sqlitedict used as a queue: keys in order, the first row is taken and deleted. No lease.

Its thread sets synchronous = OFF after opening. durable: WAL, and FULL through the connection's own queue of
statements, which its interface does not offer.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from pathlib import Path

from sqlitedict import SqliteDict

_FIRST = 'SELECT key FROM "unnamed" ORDER BY rowid LIMIT 1'


def _as_is(value: bytes) -> bytes:
    return value


class Adapter:
    """See Queue."""

    def __init__(self, directory: Path, durable: bool) -> None:
        """Open it."""
        self._dict = SqliteDict(
            str(directory / "dict.db"),
            autocommit=False,  # with it each row of a batch would be a commit
            journal_mode="WAL",
            encode=_as_is,
            decode=_as_is,
            outer_stack=False,
        )
        assert self._dict.conn is not None
        self._thread = self._dict.conn
        if durable:
            self._thread.execute("PRAGMA synchronous = FULL")
        self._numbers = itertools.count(time.time_ns())

    def put(self, bodies: Sequence[bytes]) -> None:
        """See Queue."""
        if len(bodies) == 1:
            self._dict[f"{next(self._numbers):020d}"] = bodies[0]
        else:
            self._dict.update({f"{next(self._numbers):020d}": body for body in bodies})
        self._dict.commit()

    def cycle(self, count: int) -> int:
        """See Queue."""
        for done in range(count):
            first = self._thread.select_one(_FIRST)
            if first is None:
                return done
            self._dict[first[0]]
            del self._dict[first[0]]
            self._dict.commit()
        return count

    def forget(self) -> None:
        """See Queue: nothing is kept."""

    def pids(self) -> Sequence[int]:
        """See Queue."""
        return ()

    def close(self) -> None:
        """See Queue."""
        self._dict.close()


def open_queue(directory: Path, durable: bool) -> Adapter:
    """Open a SqliteDict."""
    return Adapter(directory, durable)
