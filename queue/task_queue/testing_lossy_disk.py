"""A disk for SQLite that remembers what was not synced, and what a power cut would leave of it.

Sectors of 512 bytes are whole or absent. Of what was not synced a cut keeps nothing, a prefix or a random
half, file by file. A file's entry in its directory is safe once the directory is synced, which SQLite asks
for with the first sync of a new log or journal; a removal may come undone until then. It knows no store.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from unittest.mock import patch

import apsw

SECTOR = 512
#: Bytes at an offset, or (None) the end of the file moved there.
Write = tuple[int, bytes | None]
_NEW_LOG = apsw.SQLITE_OPEN_WAL | apsw.SQLITE_OPEN_MAIN_JOURNAL


@dataclass
class Kept:
    """One file: what is on the disk, and what is on its way there."""

    durable: bytearray = field(default_factory=bytearray)
    pending: list[Write] = field(default_factory=list)
    is_linked: bool = False  #: its entry in the directory is safe
    is_removed: bool = False  #: its removal is not safe yet
    earlier: bytes | None = None  #: what is still under its name on the disk while it is not linked


class LossyDisk(apsw.VFS):
    """The system's files below one folder. before_step: told before every write, sync and removal."""

    def __init__(self, name: str) -> None:
        """Register under a name for connections to ask for."""
        self.files: dict[str, Kept] = {}
        self.before_step: Callable[[str], None] = lambda kind: None
        super().__init__(name, "")

    def forget(self) -> None:
        """Begin with another folder."""
        self.files.clear()

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> LossyFile:
        """See apsw.VFS. A name whose removal is not safe yet: a new file beside what the disk still holds."""
        path = name.filename() if isinstance(name, apsw.URIFilename) else str(name)
        known = self.files.get(path)
        if known is None:
            exists = os.path.exists(path)
            content = Path(path).read_bytes() if exists else b""
            self.files[path] = Kept(durable=bytearray(content), is_linked=exists)
        elif known.is_removed:
            self.files[path] = Kept(earlier=bytes(known.durable) if known.is_linked else known.earlier)
        return LossyFile(self, path, name, flags)

    def xDelete(self, filename: str, syncdir: bool) -> None:
        """See apsw.VFS."""
        self.before_step("remove")
        super().xDelete(filename, syncdir)
        if filename in self.files:
            self.files[filename].is_removed = True
        if syncdir:
            self.sync_directory()

    def sync_directory(self) -> None:
        """Make every entry and every removal safe."""
        self.files = {path: kept for path, kept in self.files.items() if not kept.is_removed}
        for kept in self.files.values():
            kept.is_linked = True

    def after_cut(self, rng: random.Random) -> dict[str, bytes]:
        """Return what the disk may hold after a cut now, by file name."""
        left: dict[str, bytes] = {}
        for path, kept in self.files.items():
            content = kept_of(kept, rng)
            if content is not None:
                left[Path(path).name] = content
        return left


class LossyFile(apsw.VFSFile):
    """One of its files."""

    def __init__(
        self, disk: LossyDisk, path: str, name: str | apsw.URIFilename | None, flags: list[int]
    ) -> None:
        self._disk, self._path = disk, path
        self._syncs_directory = bool(flags[0] & _NEW_LOG) and not disk.files[path].is_linked
        super().__init__("", name, flags)

    def xWrite(self, data: bytes, offset: int) -> None:
        """See apsw.VFSFile: readers see it, the disk has yet to."""
        self._disk.before_step("write")
        super().xWrite(data, offset)
        self._disk.files[self._path].pending.append((offset, bytes(data)))

    def xTruncate(self, newsize: int) -> None:
        """See apsw.VFSFile."""
        self._disk.before_step("truncate")
        super().xTruncate(newsize)
        self._disk.files[self._path].pending.append((newsize, None))

    def xSync(self, flags: int) -> None:
        """See apsw.VFSFile: what was written so far survives a cut."""
        # The real disk is not asked: whether this one keeps its bytes is what it remembers.
        self._disk.before_step("sync")
        kept = self._disk.files[self._path]
        apply(kept.durable, kept.pending)
        kept.pending.clear()
        if self._syncs_directory:
            self._disk.sync_directory()
            self._syncs_directory = False


@contextmanager
def on_lossy_disks(disk_of: Callable[[Path], str | None]) -> Iterator[None]:
    """Have databases opened on lossy disks inside the block.

    disk_of: returns the name of the disk that a file lies on, None for the system's own.
    """
    real = apsw.Connection

    def connection(name: str, *, flags: int = 6, **rest: object) -> apsw.Connection:
        return real(name, flags=flags, vfs=disk_of(Path(name)))

    with patch.object(apsw, "Connection", connection):  # every part opens its files with it
        yield


def kept_of(kept: Kept, rng: random.Random) -> bytes | None:
    """Return what a cut leaves under one name, None for no file."""
    is_safe = kept.is_linked and not kept.is_removed
    if is_safe or ((kept.is_linked or not kept.is_removed) and rng.random() < 0.5):
        return written(kept.durable, survivors(kept.pending, rng))
    return kept.earlier


def survivors(pending: list[Write], rng: random.Random) -> list[Write]:
    """Return what a cut keeps of the writes that were not synced."""
    parts = [part for write in pending for part in in_sectors(write)]
    match rng.choice(["nothing", "prefix", "half"]):
        case "nothing":
            return []
        case "prefix":
            return parts[: rng.randint(0, len(parts))]
        case _:
            return [part for part in parts if rng.random() < 0.5]


def in_sectors(write: Write) -> Iterator[Write]:
    """Yield a write in the pieces that a disk keeps whole."""
    offset, data = write
    if data is None:
        yield write
        return
    start = 0
    while start < len(data):
        end = min(len(data), start + SECTOR - (offset + start) % SECTOR)
        yield offset + start, data[start:end]
        start = end


def written(content: bytes | bytearray, writes: list[Write]) -> bytes:
    """Return content with the writes done, in order."""
    buffer = bytearray(content)
    apply(buffer, writes)
    return bytes(buffer)


def apply(buffer: bytearray, writes: list[Write]) -> None:
    """Do the writes, in order; a gap before one reads as zeros."""
    for offset, data in writes:
        if data is None:
            del buffer[offset:]
            continue
        buffer.extend(bytes(max(0, offset - len(buffer))))
        buffer[offset : offset + len(data)] = data
