"""How much memory another process has, as the kernel counts it. MB are decimal: 1 000 000 bytes."""

from __future__ import annotations

import re
import statistics
from pathlib import Path

import psutil

#: Heartbeats and first state have gone out by then; what is left is what an idle node costs, seconds.
SETTLE_S = 3.0


def resident_mb(process: psutil.Process) -> float:
    """Return what is resident now, library code included that others may share; 0 when it has ended."""
    return float(process.memory_info().rss) / 1e6


def steady_mb(pid: int) -> float:
    """Return what is resident of a process that does nothing, median of five looks."""
    process = psutil.Process(pid)
    return statistics.median(resident_mb(process) for _ in range(5))


def anonymous_mb(pid: int) -> float:
    """Return the resident memory with no file behind it: what none shares, and nothing can reload."""
    return _kilobytes(Path(f"/proc/{pid}/smaps_rollup"), "Anonymous")


def peak_mb(pid: int) -> float:
    """Return the most that was ever resident, since the process was started."""
    return _kilobytes(Path(f"/proc/{pid}/status"), "VmHWM")


def _kilobytes(file: Path, name: str) -> float:
    found = re.search(rf"^{name}:\s+(\d+) kB$", file.read_text(encoding="ascii"), re.MULTILINE)
    assert found is not None, f"{file} has no {name}"
    return int(found.group(1)) * 1024 / 1e6
