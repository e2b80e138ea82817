"""One owner of a data directory. Owns the lock file; the lock ends with the process, however it ends."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from types import TracebackType

from skerry.durable import make_directory
from skerry.errors import DirectoryInUse

#: The file's name in the directory.
LOCK = "owner.lock"


def is_owned(directory: Path) -> bool:
    """Decide whether a process owns the directory at this moment; nothing is changed or kept."""
    try:
        descriptor = os.open(directory / LOCK, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


class DirectoryLock:
    """Holds `<directory>/owner.lock` exclusively; its text is the owner's pid."""

    def __init__(self, directory: Path) -> None:
        """Take the lock, making the directory (mode 0700) when it is missing.

        Raises DirectoryInUse with the owner's pid.
        """
        make_directory(directory)
        self._fd = os.open(directory / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            text = os.pread(self._fd, 32, 0).decode("ascii", "replace").strip()
            os.close(self._fd)
            raise DirectoryInUse(str(directory), int(text) if text.isdigit() else None) from error
        os.ftruncate(self._fd, 0)
        os.pwrite(self._fd, f"{os.getpid()}\n".encode(), 0)

    def release(self) -> None:
        """Give the directory up."""
        os.close(self._fd)

    def __enter__(self) -> DirectoryLock:
        """Return the held lock."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Release."""
        self.release()
