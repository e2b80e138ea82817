"""The testing kit's disks: a small file system, filled from outside, and what a database says of itself."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import apsw

from task_queue.limits import MIB


class NoLoopDevice(Exception):
    """A loop mount needs root and a loop device."""


@contextmanager
def small_disk(folder: Path, size_bytes: int = 16 * MIB) -> Iterator[Path]:
    """Mount an ext4 file system of this size under folder.  Raises NoLoopDevice where that cannot be done."""
    image, mount = folder / "disk.img", folder / "disk"
    mount.mkdir()
    with image.open("wb") as file:
        file.truncate(size_bytes)
    make = ["mkfs.ext4", "-q", "-m", "0", "-O", "^has_journal", str(image)]
    subprocess.run(make, check=True, capture_output=True)
    mounted = subprocess.run(
        ["mount", "-o", "loop,errors=remount-ro", str(image), str(mount)], capture_output=True, text=True
    )
    if mounted.returncode != 0:
        raise NoLoopDevice(f"a loop mount needs root and a loop device: {mounted.stderr.strip()}")
    try:
        yield mount
    finally:
        subprocess.run(["umount", "--lazy", str(mount)], check=True)


def make_read_only(mount: Path) -> None:
    """Have the kernel find an error in a small disk's file system, upon which nothing more is written to it.

    Raises NoLoopDevice where the kernel cannot be asked.
    """
    devices = {
        fields[1]: fields[0]
        for line in Path("/proc/mounts").read_text().splitlines()
        if (fields := line.split())
    }
    trigger = Path("/sys/fs/ext4") / Path(devices[str(mount)]).name / "trigger_fs_error"
    if not os.access(trigger, os.W_OK):
        raise NoLoopDevice(f"{trigger} cannot be written")
    trigger.write_text("an error that a test asked for")


def fill(folder: Path, *, leave_bytes: int = 0, name: str = "stuffing") -> Path:
    """Write a file until the file system is full, from outside the queue."""
    stuffing = folder / name
    with stuffing.open("ab", buffering=0) as file:
        stat = os.statvfs(folder)
        wanted = max(0, stat.f_bavail * stat.f_frsize - leave_bytes)
        written = 0
        try:
            while written < wanted:
                written += file.write(b"x" * min(4096, wanted - written))
        except OSError:
            assert leave_bytes == 0
    return stuffing


def integrity(path: Path) -> list[str]:
    """Return what SQLite's own check says of a database: ["ok"] of a sound one."""
    db = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
    try:
        return [str(line) for (line,) in db.execute("PRAGMA integrity_check")]
    finally:
        db.close()
