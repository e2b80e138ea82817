"""Blocks for the index of the write-ahead log, which SQLite maps into memory. Knows no table.

With blocks smaller than a page of memory the index has holes, and writing into one on a full file system ends
the process. So it is given its blocks before the log is long enough to need them.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

#: The index grows by so much at a time, for so many frames of the log (the first time for a few fewer).
_PART_BYTES = 32 * 1024
_PART_FRAMES = 4062
_FRAME_HEADER_BYTES = 24


class LogIndex:
    """The index of one open database's log. held_bytes: of the log, for which it has its blocks."""

    def __init__(self, path: Path, page_bytes: int) -> None:
        """Take hold of the least that any log needs.  Raises OSError when there is no room for it."""
        self._folder = path.parent
        self._file = f"{path}-shm"
        self._frame_bytes = page_bytes + _FRAME_HEADER_BYTES
        self.held_bytes = 0
        self._hold(1)

    def hold(self, log_bytes: int) -> bool:
        """Take hold of what a log of this length needs; False when the file system is too full for that."""
        parts = 1 + log_bytes // (self._frame_bytes * _PART_FRAMES)
        stat = os.statvfs(self._folder)
        if stat.f_bavail * stat.f_frsize < 2 * parts * _PART_BYTES:  # what fails takes the last bytes as well
            return False
        self._hold(parts)
        return True

    def _hold(self, parts: int) -> None:
        """By SQLite's own descriptor: to open and close another one would take its locks away."""
        name = os.path.realpath(self._file)
        for descriptor in os.listdir("/proc/self/fd"):
            with suppress(FileNotFoundError):  # the listing's own
                if os.readlink(f"/proc/self/fd/{descriptor}") == name:
                    os.posix_fallocate(int(descriptor), 0, parts * _PART_BYTES)
        self.held_bytes = parts * _PART_FRAMES * self._frame_bytes
