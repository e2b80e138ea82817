"""Room on a full file system: files that are given up so that what was accepted ends, and control goes on.

On a full disk SQLite can neither delete nor checkpoint. With the ballast gone it can do both. A smaller file
is given up for the control lane alone, so that ends and reports cannot use up its room.
"""

from __future__ import annotations

import os
from pathlib import Path

from task_queue.limits import Limits


class Ballast:
    """The ballast files beside a database."""

    def __init__(self, database: Path, limits: Limits) -> None:
        """Make the files that are missing, as far as there is room."""
        self._folder = database.parent
        self._floor_bytes = limits.free_floor_bytes
        self._last = _Part(database.with_name(database.name + ".reserve"), limits.control_ballast_bytes)
        self._first = _Part(database.with_name(database.name + ".ballast"), limits.ballast_bytes)
        self.restore()

    @property
    def is_whole(self) -> bool:
        """Nothing of it is given up."""
        return self._first.is_held and self._last.is_held

    def free_bytes(self) -> int:
        """Return what this user may still write on the file system."""
        stat = os.statvfs(self._folder)
        return stat.f_bavail * stat.f_frsize

    def spare_bytes(self) -> int:
        """Return what may still be written beside the ballast, of which a part may be given up now."""
        missing = (0 if self._first.is_held else self._first.size_bytes) + (
            0 if self._last.is_held else self._last.size_bytes
        )
        return max(0, self.free_bytes() - missing)

    def give_up(self, *, for_control: bool) -> bool:
        """Free a file when the file system really is full; say whether that made room."""
        parts = (self._first, self._last) if for_control else (self._first,)
        free = self.free_bytes()
        part = next((part for part in parts if part.is_held and free < part.size_bytes), None)
        if part is None:
            return False
        part.free()
        return True

    def restore(self) -> None:
        """Make the files again once there is room for them beside the floor."""
        for part in (self._last, self._first):
            # Twice its size: what has just been given up must not be taken back at once.
            if not part.is_held and self.free_bytes() >= 2 * part.size_bytes + self._floor_bytes:
                part.take()

    def why_spent(self) -> str:
        """Say why what is left on the file system is for the control lane; empty while there is more."""
        last = self._last
        if last.is_held or self.free_bytes() >= last.size_bytes:
            return ""
        return (
            f"the file system of {self._folder} is full to the last bytes, which are kept for control: "
            "delete something there; nothing that was accepted is lost"
        )


class _Part:
    """One file of the ballast. One of size 0 is always held."""

    def __init__(self, path: Path, size_bytes: int) -> None:
        self._path = path
        self.size_bytes = size_bytes
        self.is_held = size_bytes <= 0 or path.exists()

    def free(self) -> None:
        """Give the file up."""
        self._path.unlink(missing_ok=True)
        self.is_held = False

    def take(self) -> None:
        """Make the file."""
        try:
            self._write()
        except OSError:  # the room went to someone else meanwhile: the next commit tries again
            self._path.unlink(missing_ok=True)
        else:
            self.is_held = True

    def _write(self) -> None:
        fd = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            os.posix_fallocate(fd, 0, self.size_bytes)
            os.fsync(fd)
        finally:
            os.close(fd)
