"""Writes put off until something looks, then done many at once: rows added or deleted, moves of known rows.

One statement that adds 64 rows costs a third of 64 statements. Owns which statements touch which tables;
knows no rules. A row that is put off must be certain not to be there; a row to be moved, to be as remembered.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from itertools import chain
from typing import Any

import apsw

from skerry.errors import InvalidTransition, StoreDamaged
from task_queue.queries import statements

#: Rows in one statement: as many as fit of the first, then of the next.
_AT_ONCE = (64, 8, 1)
#: The statements whose rows can wait.
APPENDS = {"insert_task": "task", "insert_body": "body", "append_event": "event", "append_outbox": "outbox"}
#: Deletions that can wait. Done table by table they free pages in a row that lie together, as then does what
#: is written into those next: the more scattered a commit's pages are, the more of the pointer map it logs.
DELETES = {"delete_body": "body", "delete_story": "event"}
_TABLES = re.compile(rf"\b({'|'.join(APPENDS.values())})\b")
_TABLE_OF = APPENDS | DELETES
_COMMENT = re.compile(r"--[^\n]*")
_VALUES = re.compile(r"VALUES\s*\(([^)]*)\)")


@cache
def touched(name: str) -> frozenset[str]:
    """Return the tables that a statement reads or writes, of those whose rows may be put off."""
    return frozenset(_TABLES.findall(_COMMENT.sub("", statements()[name])))


@cache
def _many(name: str, count: int) -> str:
    """Return the statement that adds so many rows."""

    def repeat(found: re.Match[str]) -> str:
        row = "(" + ", ".join("?" for _ in found[1].split(",")) + ")"
        return "VALUES " + ", ".join([row] * count)

    return _VALUES.sub(repeat, statements()[name], count=1)


class Appends:
    """What is put off on one connection, by statement."""

    def __init__(self, db: apsw.Connection) -> None:
        """Write on db."""
        self._db = db
        self._waiting: dict[str, list[Sequence[Any]]] = {}
        self._tables: set[str] = set()
        self._moved: set[int] = set()  #: rows of the task table whose moves wait

    def move(self, name: str, seq: int, values: Sequence[Any]) -> None:
        """Put a task's move off; one before it is written first, so that those that wait have no order."""
        if seq in self._moved:
            self.write()
        self._moved.add(seq)
        self.add(name, values)

    def add(self, name: str, values: Sequence[Any]) -> None:
        """Put a row off: the values that the statement binds, in its order, each once."""
        if name in self._waiting:
            self._waiting[name].append(values)
        else:
            self._waiting[name] = [values]
            self._tables.add(_TABLE_OF.get(name, "task"))

    def drop(self) -> None:
        """Forget what is put off: its transaction is taken back."""
        self._waiting.clear()
        self._tables.clear()
        self._moved.clear()

    def before(self, name: str) -> None:
        """Write what the statement could look at."""
        if self._tables and not self._tables.isdisjoint(touched(name)):
            self.write()

    def write(self) -> None:
        """Write everything that is put off."""
        waiting, self._waiting = self._waiting, {}
        self._tables.clear()
        self._moved.clear()
        for name, rows in waiting.items():
            if name in DELETES:
                self._db.executemany(statements()[name], rows)
            else:
                write = self._write if name in APPENDS else self._move
                write(name, rows)

    def _move(self, name: str, rows: list[Sequence[Any]]) -> None:
        before = self._db.total_changes()
        self._db.executemany(statements()[name], rows)
        if self._db.total_changes() - before != len(rows):
            raise InvalidTransition("another than is remembered", name.removeprefix("on_"))

    def _write(self, name: str, rows: list[Sequence[Any]]) -> None:
        start = 0
        for count in _AT_ONCE:
            while len(rows) - start >= count:
                values = tuple(chain.from_iterable(rows[start : start + count]))
                self._db.execute(_many(name, count), values)
                if self._db.changes() != count:
                    raise StoreDamaged(f"{APPENDS[name]} holds a row that is not there to be found")
                start += count
