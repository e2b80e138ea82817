"""Opening the database file: settings, schema, and the one place where SQLite's errors become ours."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import apsw

from skerry.errors import StorageFailed, StoreTooNew
from task_queue.queries import schema_files

#: Set on every connection. FULL: an acknowledged commit survives a power cut; NORMAL forgets the last ones.
_SETTINGS = (
    "synchronous = FULL",
    "cache_size = -8192",
    "foreign_keys = ON",
    "mmap_size = 0",
    "secure_delete = OFF",
    "trusted_schema = OFF",
    "temp_store = MEMORY",
)
_BUSY_TIMEOUT_MS = 5000
_WAL_LIMIT_BYTES = 16 * 1024 * 1024


@contextmanager
def translated(path: Path) -> Iterator[None]:
    """Turn what SQLite raises into StorageFailed with a sentence on what to do."""
    try:
        yield
    except apsw.FullError as error:
        raise StorageFailed(
            f"{path}: the disk or the queue's share of it is full; free some space", path=path
        ) from error
    except (apsw.CorruptError, apsw.NotADBError) as error:
        raise StorageFailed(
            f"{path} is damaged ({error}); stop the agent, move the file aside and start again", path=path
        ) from error
    except (apsw.Error, OSError) as error:
        raise StorageFailed(f"{path}: {error}", path=path) from error


def open_writer(path: Path, *, max_bytes: int) -> apsw.Connection:
    """Return the one connection that writes and checkpoints, with the schema brought up to date.

    Raises StoreTooNew for a newer schema (the file is not touched) and StorageFailed.
    """
    with translated(path):
        _refuse_newer(path)
        db = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE)
        try:
            if not _pragma(db, "user_version"):
                db.execute("PRAGMA auto_vacuum = INCREMENTAL")  # has an effect before the first table only
            db.execute("PRAGMA journal_mode = WAL")
            _configure(db)
            db.execute(f"PRAGMA journal_size_limit = {_WAL_LIMIT_BYTES}")
            db.execute("PRAGMA wal_autocheckpoint = 1000")
            _upgrade(db)
            db.execute(f"PRAGMA max_page_count = {max(1, max_bytes // page_size(db))}")
        except BaseException:
            db.close()
            raise
        path.chmod(0o600)
        return db


def open_reader(path: Path) -> apsw.Connection:
    """Return a connection that only reads, and never checkpoints."""
    with translated(path):
        db = _open_read_only(path)
        _configure(db)
        db.execute("PRAGMA wal_autocheckpoint = 0")
        db.execute("PRAGMA query_only = ON")
        return db


def _open_read_only(path: Path) -> apsw.Connection:
    db = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    db.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)  # the last one to close would try to write
    return db


def page_size(db: apsw.Connection) -> int:
    """Return the size of a page, bytes."""
    return _pragma(db, "page_size")


def bytes_in_use(db: apsw.Connection) -> int:
    """Return the bytes of the file that hold something."""
    return (_pragma(db, "page_count") - _pragma(db, "freelist_count")) * page_size(db)


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
        db.set_busy_timeout(_BUSY_TIMEOUT_MS)


def _configure(db: apsw.Connection) -> None:
    db.set_busy_timeout(_BUSY_TIMEOUT_MS)
    for setting in _SETTINGS:
        db.execute(f"PRAGMA {setting}").fetchall()


def _pragma(db: apsw.Connection, name: str) -> int:
    value = db.pragma(name)
    assert isinstance(value, int)
    return value


def _refuse_newer(path: Path) -> None:
    if not path.exists() or path.stat().st_size == 0:
        return
    db = _open_read_only(path)
    try:
        version = _pragma(db, "user_version")
    finally:
        db.close()
    if version > len(schema_files()):
        raise StoreTooNew(
            f"{path} has schema version {version}, this program knows {len(schema_files())}: "
            "it was left as it is; install the newer version that wrote it, or choose another data_dir",
            path=path,
            version=version,
        )


def _upgrade(db: apsw.Connection) -> None:
    for version, script in enumerate(schema_files(), start=1):
        if version > _pragma(db, "user_version"):
            with db:
                db.execute(script)
                db.execute(f"PRAGMA user_version = {version}")
