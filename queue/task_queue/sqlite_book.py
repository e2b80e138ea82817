"""The store's own row in SQLite: its epoch, its session and the book. Owns who may write: the newest session.

Knows no other table.
"""

from __future__ import annotations

import secrets
from pathlib import Path

import apsw
import msgspec

from skerry.clock import Instant
from skerry.database import translated
from skerry.errors import StorageFailed, StoreDamaged
from task_queue.limits import CHECKPOINT_S
from task_queue.queries import statements
from task_queue.rows import Book, book_of, sealed_book


class SqliteBook:
    """The row as this session has it. session: 0 until one is begun."""

    def __init__(self, path: Path) -> None:
        """Begin without a connection: see attach()."""
        self._path = path
        self._sql = statements()
        self.session = 0
        self.epoch = ""
        self.book = Book()  #: with what the transaction under way has changed
        self.saved = b""  #: what the file holds of it

    def attach(self, db: apsw.Connection) -> None:
        """Read the row of a connection's file, made if it has none.

        Raises StorageFailed when another process has begun a session, and StoreDamaged.
        """
        self._db = db
        with translated(self._path):
            empty = msgspec.json.encode(Book()).decode()
            db.execute(self._sql["create_store"], {"epoch": secrets.token_hex(8), "book": empty})
            epoch, session, book = self._row()
        if self.session and session != self.session:
            raise self._taken_over()
        self.epoch = epoch
        self.saved = book.encode()
        self.book = book_of(self.saved)

    def begin_session(self) -> None:
        """Take the file over: whoever had it open before may write no more."""
        with translated(self._path):
            self._db.execute(self._sql["begin_session"])
            self.session = self._row()[1]

    def save(self, on_s: float, now: Instant, *, has_changed: bool) -> bytes:
        """Write the book when anything was written, or its clock is old. Returns what the file holds now."""
        if not has_changed and on_s - self.book.powered_s < CHECKPOINT_S:
            return self.saved
        self.book.checkpoint(on_s, now)
        self.book.commits += 1
        saved = sealed_book(self.book)
        self._db.execute(self._sql["save_book"], {"book": saved.decode(), "session": self.session})
        if self._db.changes() != 1:
            raise self._taken_over()
        return saved

    def undo(self) -> None:
        """Go back to what the file holds."""
        self.book = self.committed()

    def committed(self) -> Book:
        """Return a copy of what the file holds. From any thread."""
        return msgspec.json.decode(self.saved, type=Book)

    def _row(self) -> tuple[str, int, str]:
        epoch, session, book = self._db.execute(self._sql["store"]).fetchall()[0]
        if isinstance(epoch, str) and isinstance(session, int) and isinstance(book, str):
            return epoch, session, book
        raise StoreDamaged(f"{self._path}: the store's own row holds what it never does")

    def _taken_over(self) -> StorageFailed:
        return StorageFailed(f"{self._path} was opened by another process: this one may write no more")
