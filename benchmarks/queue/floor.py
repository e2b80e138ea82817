"""The raw floor, "fd": how many synced writes of one 4 KiB page the disk takes, in a process of its own.

`python -m benchmarks.queue.floor DIRECTORY SECONDS` prints the rate. The pages go round in a file that is
there already, as in a write-ahead log that is used again: a growing file would cost a journal commit more.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

_PAGE = b"\0" * 4096
_PAGES = 1000


def syncs_per_s(directory: Path, duration_s: float) -> float:
    """Return the rate on the disk of `directory`."""
    path = directory / "synced-pages"
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        os.write(handle, _PAGE * _PAGES)
        os.fsync(handle)
        count, began = 0, time.perf_counter()
        while count == 0 or time.perf_counter() - began < duration_s:
            os.pwrite(handle, _PAGE, (count % _PAGES) * len(_PAGE))
            os.fdatasync(handle)
            count += 1
        return count / (time.perf_counter() - began)
    finally:
        os.close(handle)
        path.unlink()


def main(arguments: Sequence[str]) -> int:
    """Print the rate."""
    directory, seconds = arguments
    print(syncs_per_s(Path(directory), float(seconds)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
