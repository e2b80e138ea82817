"""Processes left behind by an agent that died.

Owns the marker in their environment; kills only what carries it.

A process that wiped its environment is not found here; the service unit's control group ends that one.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import time
from pathlib import Path

from devices.reader import SysReader

#: How long killed processes may take to go; one in uninterruptible sleep can outlast it.
_PATIENCE_S = 5.0
#: Below the data directory: what only a running attempt, or a report not yet committed, refers to.
LEFTOVERS = ("work", "outputs")


def agent_marker(data_dir: Path) -> str:
    """Return the environment entry that every child of the agent with this data directory carries."""
    return f"SKERRY_AGENT={hashlib.sha256(os.path.realpath(data_dir).encode()).hexdigest()[:16]}"


def end_orphans(data_dir: Path) -> int:
    """Kill what an earlier agent of this data directory left running and return how many there were.

    Its private directories of commands are removed too, and outputs that were never committed.

    Call it only while holding the data directory's lock: a running agent's children carry the same marker.
    """
    killed = end_marked(agent_marker(data_dir))
    for name in LEFTOVERS:
        shutil.rmtree(data_dir / name, ignore_errors=True)
    return killed


def marked(entry: str, reader: SysReader | None = None) -> tuple[int, ...]:
    """Return the processes with this entry in their environment, without this one and its ancestors."""
    reader = reader or SysReader()
    pids = [int(name) for name in reader.names("/proc").or_else(()) if name.isdecimal()]
    spared = _lineage(reader)
    return tuple(pid for pid in pids if pid not in spared and _carries(pid, entry, reader))


def end_marked(entry: str) -> int:
    """Kill every process with this entry in its environment, wait, and return how many there were."""
    reader, killed = SysReader(), set[int]()
    deadline = time.monotonic() + _PATIENCE_S
    # Again and again: what was about to fork may have done so while we looked.
    while (found := marked(entry, reader)) and time.monotonic() < deadline:
        killed.update(pid for pid in found if _kill(pid, entry, reader))
        time.sleep(0.01)
    return len(killed)


def _carries(pid: int, entry: str, reader: SysReader) -> bool:
    return entry.encode() in (reader.data(f"/proc/{pid}/environ").value or b"").split(b"\0")


def _kill(pid: int, entry: str, reader: SysReader) -> bool:
    """Kill through a handle on the process: the number may belong to another one by now."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return False
    try:
        if not _carries(pid, entry, reader):
            return False
        signal.pidfd_send_signal(handle, signal.SIGKILL)
        return True
    except ProcessLookupError:
        return False
    finally:
        os.close(handle)


def parent_of(pid: int, reader: SysReader) -> int:
    """Return the parent's process id; 0 when the process is gone."""
    after_name = reader.text(f"/proc/{pid}/stat").or_else("").rpartition(")")[2].split()
    return int(after_name[1]) if len(after_name) > 1 else 0


def _lineage(reader: SysReader) -> set[int]:
    line, pid = set[int](), os.getpid()
    while pid > 1 and pid not in line:
        line.add(pid)
        pid = parent_of(pid, reader)
    return line
