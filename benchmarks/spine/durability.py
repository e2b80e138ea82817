"""Durable submits per second through the agent's own path, beside raw synced writes on the same disk."""

from __future__ import annotations

import os
import time
from pathlib import Path

_BLOCK = b"\0" * 4096  # what one small commit adds to a log, about


def synced_writes_per_s(directory: Path, duration_s: float) -> float:
    """Return how many 4 KiB appends, each followed by fdatasync, this disk takes in a second."""
    path = directory / "synced-writes"
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        count, began = 0, time.perf_counter()
        while time.perf_counter() - began < duration_s:
            os.write(handle, _BLOCK)
            os.fdatasync(handle)
            count += 1
        return count / (time.perf_counter() - began)
    finally:
        os.close(handle)
        path.unlink()
