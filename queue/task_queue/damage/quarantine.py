"""Where a damaged database goes: a folder of its own beside the queue, whole, and a bounded number of them.

Owns the moves and that a power cut in the middle of them loses nothing: a note says what is under way until
a fresh database stands in the old one's place. Knows nothing of what is in the files.
"""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

import msgspec

from skerry.durable import sync, write_whole

FOLDER = "quarantine"
#: Copies kept at most; the oldest goes first.
COPIES = 3
_NAME = re.compile(r"(\d{6})-\d{8}T\d{6}Z")
_PARTS = ("", "-wal", "-shm")


class _Note(msgspec.Struct, frozen=True):
    copy: str
    is_moved: bool = False


@dataclass(frozen=True)
class Copy:
    """One database that was set aside."""

    folder: Path
    file: str  #: name of the database

    @property
    def name(self) -> str:
        """What people and reports call it; names sort by age."""
        return self.folder.name

    @property
    def database(self) -> Path:
        """The damaged file; its log lies beside it."""
        return self.folder / self.file

    @property
    def size_bytes(self) -> int:
        """What it takes on the disk."""
        return sum(path.stat().st_size for path in self.folder.iterdir())


def copies(database: Path) -> list[Copy]:
    """Return what was set aside of a database, the oldest first."""
    folder = database.parent / FOLDER
    names = (
        sorted(path.name for path in folder.iterdir() if _NAME.fullmatch(path.name))
        if folder.is_dir()
        else []
    )
    return [Copy(folder / name, database.name) for name in names]


def set_aside(database: Path, wall_s: float) -> Copy:
    """Move the database, its log and its index away together. An older move must be over: see `unfinished`.

    Nobody may have the file open for writing. A fresh database must take its place: see `replaced`.
    Raises OSError.
    """
    known = copies(database)
    number = int(known[-1].name[:6]) + 1 if known else 1
    name = f"{number:06d}-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime(max(0.0, wall_s)))}"
    write_whole(_note_of(database), msgspec.json.encode(_Note(name)))
    return _move(database, name)


def unfinished(database: Path) -> Copy | None:
    """Return the copy whose fresh database is yet to be made: a power cut came between. Raises OSError."""
    path = _note_of(database)
    try:
        note = msgspec.json.decode(path.read_bytes(), type=_Note)
    except FileNotFoundError:
        return None
    except msgspec.DecodeError:  # it is written whole: this is damage, and there is nothing to go by
        path.unlink()
        return None
    if not note.is_moved:
        return _move(database, note.copy)
    if database.exists():  # the fresh one
        replaced(database)
        return None
    return Copy(database.parent / FOLDER / note.copy, database.name)


def replaced(database: Path) -> None:
    """Take note that a fresh database is in place, durably."""
    sync(database.parent)
    _note_of(database).unlink(missing_ok=True)
    sync(database.parent)


def prune(database: Path, *, limit_bytes: int, spare: Collection[str] = ()) -> None:
    """Remove the oldest copies beyond the number kept and the bytes they may take, except those named."""
    kept, size = 0, 0
    for copy in reversed(copies(database)):
        size += copy.size_bytes
        if copy.name in spare or (kept < COPIES and size <= limit_bytes):
            kept += 1
        else:
            shutil.rmtree(copy.folder)


def remove_oldest(database: Path, *, spare: Collection[str]) -> bool:
    """Remove the oldest copy, except those named; False when there is none."""
    oldest = next((copy for copy in copies(database) if copy.name not in spare), None)
    if oldest is None:
        return False
    shutil.rmtree(oldest.folder)
    return True


def _move(database: Path, name: str) -> Copy:
    folder = database.parent / FOLDER / name
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    sync(folder.parent.parent)
    sync(folder.parent)
    for part in _PARTS:
        path = database.with_name(database.name + part)
        if path.exists():
            path.rename(folder / path.name)
    sync(folder)
    sync(database.parent)
    write_whole(_note_of(database), msgspec.json.encode(_Note(name, is_moved=True)))
    return Copy(folder, database.name)


def _note_of(database: Path) -> Path:
    return database.with_name(database.name + ".set-aside")
