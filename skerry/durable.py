"""Files that a power cut leaves as they were or as they shall be, never half. Owns how they are written."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path


def write_whole(path: Path, data: bytes, *, mode: int = 0o600, replace: bool = True) -> None:
    """Write beside the target, sync, then rename over it, or (not replace) link to it: the first writer wins.

    Raises OSError; nothing is left behind then.
    """
    beside = path.with_name(f".{path.name}.{os.getpid()}.{os.urandom(4).hex()}")
    try:
        descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        if replace:
            beside.replace(path)
        else:
            with contextlib.suppress(FileExistsError):
                os.link(beside, path)
    finally:
        beside.unlink(missing_ok=True)
    sync(path.parent)


def copy_of(path: Path) -> Path:
    """Return where a file is kept a second time, when it is."""
    return path.with_name(f"{path.name}.copy")


def make_directory(path: Path, *, mode: int = 0o700) -> None:
    """Make a directory, with parents that are missing, so that no power cut takes it away with its files.

    mode: of the directory itself.  One that is there is left as it is.  Raises OSError.
    """
    missing = [each for each in (path, *path.parents) if not each.exists()]
    path.mkdir(parents=True, exist_ok=True, mode=mode)
    for each in missing:
        sync(each.parent)


def sync(path: Path) -> None:
    """Have the disk keep a file's content, or a directory's names.  Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
