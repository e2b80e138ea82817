"""What every SQLite file has in common: settings, schema versions, and where SQLite's errors become ours.

Knows no table. Each store says how it writes; all of them sync every commit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import apsw

from skerry.errors import StorageFailed, StoreTooNew

#: How long a connection waits for another one's lock.
BUSY_TIMEOUT_MS = 5000
#: FULL: an acknowledged commit survives a power cut; NORMAL forgets the last ones.
_LEDGER_SETTINGS = ("journal_mode = WAL", "synchronous = FULL", "foreign_keys = ON", "cache_size = -8000")


@contextmanager
def translated(path: Path) -> Iterator[None]:
    """Turn what SQLite raises into StorageFailed with a sentence on what to do."""
    try:
        yield
    except apsw.FullError as error:
        raise StorageFailed(
            f"{path}: the disk, or this file's share of it, is full; free some space", path=path
        ) from error
    except (apsw.CorruptError, apsw.NotADBError) as error:
        raise StorageFailed(
            f"{path} is damaged ({error}); restore a backup, or stop the service and move the file aside "
            "to begin anew",
            path=path,
        ) from error
    except (apsw.Error, OSError) as error:
        raise StorageFailed(f"{path}: {error}", path=path) from error


def open_ledger(path: Path, schema: Sequence[str]) -> apsw.Connection:
    """Return a ledger's one connection, with the schema brought up to date.

    Raises StoreTooNew for a newer schema (the file is not touched) and StorageFailed.
    """
    with translated(path):
        refuse_newer(path, len(schema))
        db = apsw.Connection(str(path))
        try:
            configure(db, _LEDGER_SETTINGS)
            upgrade(db, schema)
        except BaseException:
            db.close()
            raise
        return db


def open_read_only(path: Path) -> apsw.Connection:
    """Return a connection that leaves the file as it is, even when it is the last one to close."""
    db = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    db.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)  # the last one to close would try to write
    return db


def configure(db: apsw.Connection, settings: Sequence[str]) -> None:
    """Give a connection its pragmas and its patience."""
    db.set_busy_timeout(BUSY_TIMEOUT_MS)
    for setting in settings:
        db.execute(f"PRAGMA {setting}").fetchall()


def pragma(db: apsw.Connection, name: str) -> int:
    """Return a pragma that is a number."""
    value = db.pragma(name)
    assert isinstance(value, int)
    return value


def refuse_newer(path: Path, known: int) -> None:
    """Raise StoreTooNew when the file has a schema above the known one. Nothing is written to find out."""
    if not path.exists() or path.stat().st_size == 0:
        return
    db = open_read_only(path)
    try:
        version = pragma(db, "user_version")
    finally:
        db.close()
    if version > known:
        raise StoreTooNew(
            f"{path} has schema version {version}, this program knows {known}: it was left as it is; "
            "install the newer version that wrote it, or choose another data_dir",
            path=path,
            version=version,
        )


def upgrade(db: apsw.Connection, schema: Sequence[str]) -> None:
    """Apply the schema's steps that the database lacks, each in a transaction with its version."""
    for version, script in enumerate(schema, start=1):
        if version > pragma(db, "user_version"):
            with db:
                db.execute(script)
                db.execute(f"PRAGMA user_version = {version}")
