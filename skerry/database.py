"""What every SQLite file has in common: settings, schema versions, and where SQLite's errors become ours.

Knows no table. Each store says how it writes; all of them sync every commit.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from urllib.parse import quote

import apsw

from skerry.errors import StorageFailed, StoreDamaged, StoreTooNew

#: How long a connection waits for another one's lock.
BUSY_TIMEOUT_MS = 5000
#: FULL: an acknowledged commit survives a power cut; NORMAL forgets the last ones.
_LEDGER_SETTINGS = ("journal_mode = WAL", "synchronous = FULL", "foreign_keys = ON", "cache_size = -8000")


@dataclass(frozen=True, kw_only=True)
class Step:
    """One step of a schema: its script, and what SQL alone cannot do before and after it.

    The parts work on the tables as that step finds or leaves them, so they use no code that goes on changing.
    """

    script: str
    before: Callable[[apsw.Connection], None] | None = None
    after: Callable[[apsw.Connection], None] | None = None


#: What SQLite takes for the index of a log before anything can be read, and as much again to be sure.
_INDEX_BYTES = 64 * 1024
#: Bytes of a log to a byte of its index, with the smallest pages; less by a margin.
_LOG_PER_INDEX = 64
#: A schema's steps in order; one that is a script only may be given as its text.
Schema = Sequence[Step | str]


class translated:
    """Turns what SQLite raises into StorageFailed with a sentence on what to do.

    A class, since each commit enters it several times: a generator costs three times as much.
    """

    __slots__ = ("_path",)

    def __init__(self, path: Path) -> None:
        """path: of the database."""
        self._path = path

    def __enter__(self) -> None:
        """Begin what may raise."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        """Raise StorageFailed in the place of what SQLite or the system raised."""
        if isinstance(error, apsw.Error | OSError | UnicodeDecodeError):
            first = _first(error)
            raise _told(self._path, first) from first


def _first(error: Exception) -> Exception:
    """Return what went wrong first: on a full disk SQLite rolls back itself, and undoing that fails too."""
    while isinstance(error, apsw.Error) and isinstance(error.__context__, apsw.Error):
        error = error.__context__
    return error


def _told(path: Path, error: Exception) -> StorageFailed:
    is_full = isinstance(error, apsw.IOError) and not has_index_room(path)
    if is_full or isinstance(error, apsw.FullError) or getattr(error, "errno", None) == errno.ENOSPC:
        return StorageFailed(
            f"{path}: the disk, or this file's share of it, is full; free some space", path=path
        )
    if isinstance(error, apsw.CorruptError | apsw.NotADBError | UnicodeDecodeError):
        return StoreDamaged(
            f"{path} is damaged ({error}); restore a backup, or stop the service and move the file aside "
            "to begin anew",
            path=path,
        )
    return StorageFailed(f"{path}: {error}", path=path)


def has_index_room(path: Path) -> bool:
    """Decide whether the index of a log finds room beside a database, which SQLite maps into memory.

    Where it does not, SQLite must not be asked: with blocks smaller than a page of memory the file has holes,
    and writing into one on a full disk ends the process.
    """
    try:
        stat = os.statvfs(path.parent)
    except OSError:
        return True  # whoever opens the database will hear of it
    return stat.f_bavail * stat.f_frsize >= _INDEX_BYTES + _log_bytes(path) // _LOG_PER_INDEX


def _log_bytes(path: Path) -> int:
    try:
        return path.with_name(path.name + "-wal").stat().st_size
    except OSError:
        return 0


def open_ledger(path: Path, schema: Schema) -> apsw.Connection:
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


def open_read_only(path: Path, *, is_still: bool = False) -> apsw.Connection:
    """Return a connection that leaves the file as it is, even when it is the last one to close.

    is_still: nobody writes the file while it is read; then nothing is made beside it either, and it may lie
    on a medium that cannot be written.
    """
    name = f"file:{quote(str(path.absolute()))}?immutable=1" if is_still else str(path)
    db = apsw.Connection(name, flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI)
    db.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)  # the last one to close would try to write
    return db


def finish_journal(path: Path) -> None:
    """Roll back what a power cut has left half done in a file without a write-ahead log: a new one.

    A connection that only reads cannot, and fails.  Raises apsw.Error.
    """
    if not (path.exists() and path.with_name(path.name + "-journal").exists()):
        return
    db = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
    try:
        pragma(db, "user_version")
    finally:
        db.close()


def configure(db: apsw.Connection, settings: Sequence[str]) -> None:
    """Give a connection its pragmas, its patience and its plans, which no bound value changes."""
    db.set_busy_timeout(BUSY_TIMEOUT_MS)
    db.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)  # else a join is planned anew each time that it is bound
    for setting in settings:
        db.execute(f"PRAGMA {setting}").fetchall()


def pragma(db: apsw.Connection, name: str) -> int:
    """Return a pragma that is a number."""
    value = db.pragma(name)
    assert isinstance(value, int)
    return value


def refuse_newer(path: Path, known: int) -> None:
    """Raise StoreTooNew when the file has a schema above the known one. Nothing is written to find out.

    But what a power cut has left half done is rolled back.
    """
    finish_journal(path)
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


def upgrade(db: apsw.Connection, schema: Schema) -> None:
    """Apply the schema's steps that the database lacks.

    Each is one transaction with its version: one that is interrupted, wherever, is made from its start.
    """
    for version, step in enumerate(schema, start=1):
        if version > pragma(db, "user_version"):
            with db:
                _make(db, Step(script=step) if isinstance(step, str) else step)
                db.execute(f"PRAGMA user_version = {version}")


def _make(db: apsw.Connection, step: Step) -> None:
    if step.before is not None:
        step.before(db)
    db.execute(step.script)
    if step.after is not None:
        step.after(db)
