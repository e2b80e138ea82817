"""Content by hash on one disk: models, inputs, large results. Owns the files; knows nothing of tasks.

A name is `sha256:<hex>`. A file appears under its name only when it is whole, verified and synced; one that
no longer matches its name is set aside and reported. One process owns the directory (its DirectoryLock).
"""

from __future__ import annotations

import errno
import hashlib
import logging
import os
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Container, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType

import msgspec

from skerry.clock import Clock, Instant, SystemClock
from skerry.durable import make_directory, sync
from skerry.errors import BlobCorrupt, BlobError, BlobNotFound, BlobQuotaExceeded
from skerry.ids import is_content_hash

CHUNK_BYTES = 1 << 20
#: How many damaged files are kept for a look; older ones are removed.
QUARANTINE_LIMIT = 4

_log = logging.getLogger(__name__)


class Collected(msgspec.Struct, frozen=True, kw_only=True):
    """What one collection removed, and what is left."""

    removed: tuple[str, ...]
    freed_bytes: int
    used_bytes: int


class _Entry(msgspec.Struct, kw_only=True):
    size: int
    order: int  #: grows with each use: least recently used first
    used: Instant
    verified: tuple[int, int, int] | None = None  #: inode, size, mtime_ns at the last successful check


class BlobStore:
    """Files named by their hash, within a quota. Safe to use from several threads of one process."""

    def __init__(self, root: Path, quota_bytes: int, *, clock: Clock | None = None) -> None:
        """Open root (made when missing), drop half-written files and take stock; nothing is hashed here."""
        self.root = root
        self.quota_bytes = quota_bytes
        #: Called with the name of a file that was found damaged and set aside.
        self.on_corrupt: Callable[[str], None] | None = None
        self._clock = clock or SystemClock()
        self._lock = threading.RLock()
        self._entries: dict[str, _Entry] = {}
        self._held: Counter[str] = Counter()
        self._incoming_bytes = 0
        self._order = 0
        try:
            for folder in ("objects", "incoming", "quarantine", "pins"):
                make_directory(root / folder)
        except OSError as error:
            raise BlobError(f"{root} cannot be used for content: {error.strerror}") from error
        for left_over in (root / "incoming").iterdir():
            left_over.unlink()
        self._pinned = {f"sha256:{path.name}" for path in (root / "pins").iterdir()}
        self._take_stock()

    # --- reading ----------------------------------------------------------------------------------------

    def has(self, name: str) -> bool:
        """Decide whether the content is here; its file was not looked at again."""
        with self._lock:
            return name in self._entries

    def size(self, name: str) -> int:
        """Return its size, bytes.  Raises BlobNotFound."""
        with self._lock:
            return self._entry(name).size

    def path(self, name: str) -> Path:
        """Return the verified file and count it as used now.

        Hashes the file when it was not checked by this process since it last changed.
        Raises BlobNotFound; BlobCorrupt, after setting the file aside.
        """
        with self._lock:
            entry = self._entry(name)
            path = self._path(name)
            if entry.verified is None or _stamp(path) != entry.verified:
                self._verify(name, entry, path)
            self._touch(entry, path)
            return path

    def names(self) -> list[str]:
        """Return all names, least recently used first."""
        with self._lock:
            return sorted(self._entries, key=lambda name: self._entries[name].order)

    @property
    def used_bytes(self) -> int:
        """Bytes stored and bytes of uploads that are still coming in."""
        with self._lock:
            return sum(entry.size for entry in self._entries.values()) + self._incoming_bytes

    # --- writing ----------------------------------------------------------------------------------------

    def put_bytes(self, data: bytes, *, name: str | None = None) -> str:
        """Store data durably and return its name.  name: what it must hash to, else BlobCorrupt."""
        with self.receive(name) as sink:
            sink.write(data)
            return sink.commit()

    def put_file(self, path: Path, *, name: str | None = None) -> str:
        """Copy a file in, durably, and return its name.  name: what it must hash to, else BlobCorrupt."""
        try:
            with path.open("rb") as source, self.receive(name) as sink:
                while chunk := source.read(CHUNK_BYTES):
                    sink.write(chunk)
                return sink.commit()
        except OSError as error:
            raise BlobError(f"{path} cannot be read: {error.strerror}") from error

    def receive(self, name: str | None = None) -> Sink:
        """Begin a streamed put: `with store.receive(name) as sink`, then write(), then commit().

        name: what the content must hash to; None takes any.  Raises BlobError when it is not a name.
        """
        if name is not None:
            _check(name)
        return Sink(self, name)

    def discard(self, name: str) -> None:
        """Remove the content whatever refers to it; nothing happens when it is not here."""
        with self._lock:
            if self._entries.pop(name, None) is not None:
                self._path(name).unlink(missing_ok=True)

    # --- keeping ----------------------------------------------------------------------------------------

    def pin(self, name: str) -> None:
        """Keep the content through every collection, durably, until unpinned (a name may be pinned first)."""
        _check(name)
        with self._lock:
            (self.root / "pins" / _hex(name)).touch(mode=0o600)
            sync(self.root / "pins")
            self._pinned.add(name)

    def unpin(self, name: str) -> None:
        """End a pin; nothing happens when there is none."""
        _check(name)
        with self._lock:
            (self.root / "pins" / _hex(name)).unlink(missing_ok=True)
            self._pinned.discard(name)

    @contextmanager
    def holding(self, *names: str) -> Iterator[None]:
        """Keep these through every collection while the block runs (a task that reads them)."""
        with self._lock:
            self._held.update(names)
        try:
            yield
        finally:
            with self._lock:
                self._held.subtract(names)
                self._held += Counter()  # drops what nobody holds any more

    def collect(
        self,
        referenced: Container[str] | Callable[[str], bool],
        *,
        grace_s: float,
        now: Instant,
        room_bytes: int = 0,
    ) -> Collected:
        """Remove least recently used content until room_bytes more fit into the quota.

        Never removes what is referenced, pinned, held, or was used less than grace_s ago (an upload whose
        task has not been submitted yet).  May free less than asked: a put then raises BlobQuotaExceeded.
        """
        is_referenced = referenced if callable(referenced) else referenced.__contains__
        removed, freed = [], 0
        with self._lock:
            excess = self.used_bytes + room_bytes - self.quota_bytes
            for name in self.names():
                if freed >= excess:
                    break
                if self._may_go(name, grace_s, now) and not is_referenced(name):
                    freed += self._entries[name].size
                    removed.append(name)
                    self.discard(name)
            return Collected(removed=tuple(removed), freed_bytes=freed, used_bytes=self.used_bytes)

    def _may_go(self, name: str, grace_s: float, now: Instant) -> bool:
        kept = name in self._pinned or self._held[name] > 0
        return not kept and now.since(self._entries[name].used) >= grace_s

    # --- for Sink -----------------------------------------------------------------------------------------

    def _reserve(self, size: int) -> None:
        with self._lock:
            used = self.used_bytes
            if used + size > self.quota_bytes:
                raise BlobQuotaExceeded(
                    f"the content store is full: {used} of {self.quota_bytes} bytes are in use; "
                    "raise quota_bytes or wait until content is no longer needed"
                )
            self._incoming_bytes += size

    def _unreserve(self, size: int) -> None:
        with self._lock:
            self._incoming_bytes -= size

    def _adopt(self, name: str, temporary: Path, size: int) -> None:
        """Give a whole, synced file its name."""
        path = self._path(name)
        with self._lock, _translated(name):
            if not path.parent.is_dir():
                path.parent.mkdir(parents=True, mode=0o700)
                sync(path.parent.parent)
            temporary.replace(path)
            sync(path.parent)
            entry = _Entry(size=size, order=0, used=self._clock.now(), verified=_stamp(path))
            self._entries[name] = entry
            self._touch(entry, path)

    # --- inside -------------------------------------------------------------------------------------------

    def _take_stock(self) -> None:
        found = [(path.stat(), path) for path in (self.root / "objects").glob("*/*")]
        now = self._clock.now()
        for stat, path in sorted(found, key=lambda pair: pair[0].st_atime_ns):
            self._order += 1
            self._entries[f"sha256:{path.name}"] = _Entry(size=stat.st_size, order=self._order, used=now)

    def _entry(self, name: str) -> _Entry:
        _check(name)
        entry = self._entries.get(name)
        if entry is None:
            raise BlobNotFound(f"there is no content {name} here")
        return entry

    def _path(self, name: str) -> Path:
        digits = _hex(name)
        return self.root / "objects" / digits[:2] / digits

    def _touch(self, entry: _Entry, path: Path) -> None:
        self._order += 1
        entry.order, entry.used = self._order, self._clock.now()
        # The access time carries the order over a restart; losing it only makes the next collection less apt.
        with suppress(OSError):
            os.utime(path, ns=(int(self._clock.wall_s() * 1e9), path.stat().st_mtime_ns))

    def _verify(self, name: str, entry: _Entry, path: Path) -> None:
        try:
            with path.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
        except FileNotFoundError as error:
            del self._entries[name]
            raise BlobNotFound(f"the file of {name} is gone") from error
        except OSError as error:
            self._quarantine(name, path)
            raise BlobCorrupt(f"{name} cannot be read ({error.strerror}); it was set aside") from error
        if digest != _hex(name):
            self._quarantine(name, path)
            raise BlobCorrupt(f"the file of {name} is damaged; it was set aside, fetch it again")
        entry.verified = _stamp(path)

    def _quarantine(self, name: str, path: Path) -> None:
        del self._entries[name]
        folder = self.root / "quarantine"
        kept = sorted(folder.iterdir(), key=lambda old: old.stat().st_mtime_ns)
        for old in kept[: max(0, len(kept) + 1 - QUARANTINE_LIMIT)]:
            old.unlink()
        path.replace(folder / path.name)
        _log.error("content %s is damaged and was set aside", name, extra={"blob": name})
        if self.on_corrupt is not None:
            self.on_corrupt(name)


class Sink:
    """One streamed put. Leaves nothing behind unless commit() returned."""

    def __init__(self, store: BlobStore, name: str | None) -> None:
        """Open a temporary file beside the objects."""
        self._store = store
        self._name = name
        self._hash = hashlib.sha256()
        self._size = 0
        with _translated(name or "new content"):
            (store.root / "incoming").mkdir(parents=True, exist_ok=True, mode=0o700)  # someone may tidy up
            fd, text = tempfile.mkstemp(dir=store.root / "incoming")
        self._file = os.fdopen(fd, "wb")
        self._path = Path(text)

    def write(self, chunk: bytes | bytearray | memoryview) -> None:
        """Add bytes.  Raises BlobQuotaExceeded as soon as the quota, or the disk, would be exceeded."""
        self._store._reserve(len(chunk))
        self._size += len(chunk)
        self._hash.update(chunk)
        with _translated(self._name or "new content"):
            self._file.write(chunk)

    def commit(self) -> str:
        """Verify, sync, name; return the name once the content is safe.  Raises BlobCorrupt."""
        name = f"sha256:{self._hash.hexdigest()}"
        if self._name is not None and name != self._name:
            raise BlobCorrupt(f"the content sent as {self._name} has the hash {name}; it was not kept")
        if self._store.has(name) and self._is_whole(name):
            return name
        with _translated(name):
            self._file.flush()
            os.fsync(self._file.fileno())
        self._store._adopt(name, self._path, self._size)
        return name

    def _is_whole(self, name: str) -> bool:
        try:
            self._store.path(name)
        except BlobError:
            return False  # set aside just now; the copy in hand takes its place
        return True

    def __enter__(self) -> Sink:
        """Return the sink."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close, and remove what was not committed."""
        self._store._unreserve(self._size)
        with suppress(OSError):  # a full disk fails the flush again; the file goes anyway
            self._file.close()
        self._path.unlink(missing_ok=True)


@contextmanager
def _translated(name: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise BlobQuotaExceeded(f"the disk has no room for {name}") from error
        raise BlobError(f"{name} could not be stored: {error.strerror}") from error


def _check(name: str) -> None:
    if not is_content_hash(name):
        raise BlobError(f"{name[:80]!r} is not of the form sha256:<64 hex digits>")


def _hex(name: str) -> str:
    return name.removeprefix("sha256:")


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        stat = path.stat()
    except OSError:
        return None
    return (stat.st_ino, stat.st_size, stat.st_mtime_ns)
