"""Room on the file system: the free-space floor at the door, and a file given up when the disk is full.

On a full disk SQLite can neither delete nor checkpoint. With the ballast gone it can do both, so what was
accepted still ends in order; new tasks are refused until space is back.
"""

from __future__ import annotations

import os
from pathlib import Path

from task_queue.limits import Limits


class Ballast:
    """The ballast file beside a database."""

    def __init__(self, database: Path, limits: Limits) -> None:
        """Make the file when it is missing and there is room; one that cannot be made means a short disk."""
        self._path = database.with_name(database.name + ".ballast")
        self._folder = database.parent
        self._limits = limits
        self.restore()

    @property
    def is_held(self) -> bool:
        """There is something left to give up."""
        return self._path.exists()

    def free_bytes(self) -> int:
        """Return what this user may still write on the file system."""
        stat = os.statvfs(self._folder)
        return stat.f_bavail * stat.f_frsize

    def give_up(self) -> bool:
        """Free the ballast when the file system really is full; say whether that made room."""
        if not self.is_held or self.free_bytes() >= self._limits.ballast_bytes:
            return False
        self._path.unlink(missing_ok=True)
        return True

    def restore(self) -> None:
        """Make the ballast again once there is room for it beside the floor."""
        size = self._limits.ballast_bytes
        # Twice its size: what has just been given up must not be taken back at once.
        if self.is_held or size <= 0 or self.free_bytes() < 2 * size + self._limits.free_floor_bytes:
            return
        try:
            self._write(size)
        except OSError:  # the room went to someone else meanwhile: the next commit tries again
            self._path.unlink(missing_ok=True)

    def _write(self, size: int) -> None:
        fd = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            os.posix_fallocate(fd, 0, size)
            os.fsync(fd)
        finally:
            os.close(fd)

    def shortage(self) -> str:
        """Return why the file system has no room for another task; empty when it has."""
        self.restore()
        free = self.free_bytes()
        if free >= self._limits.free_floor_bytes and (self.is_held or self._limits.ballast_bytes <= 0):
            return ""
        floor = self._limits.free_floor_bytes
        return (
            f"the file system of {self._folder} is full ({free // 1024} KiB free, {floor // 1024} KiB are "
            "kept free): delete something there; nothing that was accepted is lost"
        )
