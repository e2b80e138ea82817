"""Opening the queue's database file: one connection that writes, others that only read. Knows no table."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import apsw

from skerry.database import (
    BUSY_TIMEOUT_MS,
    configure,
    has_index_room,
    open_read_only,
    pragma,
    refuse_newer,
    translated,
    upgrade,
)
from skerry.errors import StorageFailed
from task_queue.damage.page_size import settings_of_new
from task_queue.damage.remains import MARK
from task_queue.limits import Limits
from task_queue.migrations import schema
from task_queue.sqlite_index import LogIndex
from task_queue.watermarks import Usage

#: Set on every connection. cache_size: KiB; four times as much was no faster on 60 000 tasks, and stays.
_SETTINGS = (
    "cache_size = -2048",
    "foreign_keys = ON",
    "mmap_size = 0",
    "secure_delete = OFF",
    "trusted_schema = OFF",
    "temp_store = MEMORY",
)
_WAL_LIMIT_BYTES = 16 * 1024 * 1024


def open_writer(path: Path, limits: Limits) -> apsw.Connection:
    """Return the one connection that writes and checkpoints, with the schema brought up to date.

    Raises StoreTooNew for a newer schema (the file is not touched) and StorageFailed.
    """
    refuse_without_index_room(path)
    with translated(path):
        steps = schema()
        refuse_newer(path, len(steps))
        db = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE)
        try:
            if db.readonly("main"):
                raise StorageFailed(f"{path} can only be read: mount its file system for writing", path=path)
            if not pragma(db, "user_version"):
                for setting in settings_of_new():
                    db.execute(setting).fetchall()
            db.execute("PRAGMA journal_mode = WAL")
            configure(db, (f"synchronous = {limits.synchronous.upper()}", *_SETTINGS))
            LogIndex(path, page_size(db))
            db.execute(f"PRAGMA journal_size_limit = {_WAL_LIMIT_BYTES}")
            db.execute(f"PRAGMA wal_autocheckpoint = {max(1, limits.checkpoint_bytes // page_size(db))}")
            mark_version(db, len(steps))
            held = pragma(db, "page_count")
            most = limits.max_bytes // page_size(db)
            # What a larger cap let in must have room to end: a tenth more than it takes now.
            db.execute(f"PRAGMA max_page_count = {most if held < most else held + max(1, most // 10)}")
        except BaseException:
            db.close()
            raise
        path.chmod(0o600)
        return db


def refuse_folders(path: Path) -> None:
    """Raise StorageFailed when a directory stands where a file of the queue belongs, before any is moved."""
    for part in ("", "-wal", "-shm"):
        file = path.with_name(path.name + part)
        if file.is_dir():
            raise StorageFailed(f"{file} is a directory, and no file of the queue: move it away", path=path)


def refuse_without_index_room(path: Path) -> None:
    """Raise StorageFailed where SQLite would find no room for the index of the log: see has_index_room."""
    if not has_index_room(path):
        raise StorageFailed(f"{path}: the disk is full; free some space", path=path)


def mark_version(db: apsw.Connection, version: int) -> None:
    """Bring the schema up to its newest version, and have the header say so twice."""
    mark = MARK | version
    if pragma(db, "application_id") != mark or pragma(db, "user_version") != version:
        db.execute("PRAGMA application_id = 0").fetchall()
        upgrade(db, schema())
        db.execute(f"PRAGMA application_id = {mark}").fetchall()


def open_reader(path: Path, *, is_still: bool = False) -> apsw.Connection:
    """Return a connection that only reads, and never checkpoints.  is_still: nobody writes meanwhile."""
    with translated(path):
        db = open_read_only(path, is_still=is_still)
        configure(db, _SETTINGS)
        db.execute("PRAGMA wal_autocheckpoint = 0")
        db.execute("PRAGMA query_only = ON")
        return db


def let_go(db: apsw.Connection) -> None:
    """Close a connection and leave file and log as they are, for others to look at."""
    with suppress(apsw.ConnectionClosedError):
        db.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
    db.close(True)


def page_size(db: apsw.Connection) -> int:
    """Return the size of a page, bytes."""
    return pragma(db, "page_size")


def bytes_in_use(db: apsw.Connection) -> int:
    """Return the bytes of the file that hold something."""
    return (pragma(db, "page_count") - pragma(db, "freelist_count")) * page_size(db)


class Gauge:
    """Measures what an open file and its write-ahead log take: with many commits, so it is made cheap."""

    def __init__(self, db: apsw.Connection, path: Path) -> None:
        """Remember what does not change."""
        self._db = db
        self._page_bytes = page_size(db)
        self._log = log_of(path)

    def usage(self, free_bytes: int) -> Usage:
        """Return what is taken of the disk. free_bytes: of the file system."""
        pages, unused = pragma(self._db, "page_count"), pragma(self._db, "freelist_count")
        return Usage(
            used_bytes=(pages - unused) * self._page_bytes,
            file_bytes=pages * self._page_bytes,
            free_bytes=free_bytes,
            log_bytes=self.log_bytes(),
        )

    def log_bytes(self) -> int:
        """Return the size of the write-ahead log."""
        return _size(self._log)

    def written_bytes(self) -> int:
        """Return what this connection has committed so far: no less than what file and log grew by."""
        pages, _ = self._db.status(apsw.SQLITE_DBSTATUS_CACHE_WRITE)
        return pages * self._page_bytes


def log_bytes(path: Path) -> int:
    """Return the size of the write-ahead log of a database."""
    return _size(log_of(path))


def log_of(path: Path) -> str:
    """Return where the write-ahead log of a database lies."""
    return f"{path}-wal"


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:  # there is none yet
        return 0


def tidy(db: apsw.Connection) -> None:
    """Give unused space back: empty the write-ahead log, return a slice of free pages to the file system."""
    db.execute("PRAGMA incremental_vacuum(5000)").fetchall()
    checkpoint(db)


def checkpoint(db: apsw.Connection) -> None:
    """Empty the write-ahead log, unless a reader still needs it: waiting would hold up the commits."""
    db.set_busy_timeout(0)
    try:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    finally:
        db.set_busy_timeout(BUSY_TIMEOUT_MS)
