"""What a command leaves behind: its process group, and those that left the group. Owns their end.

The command executor adopts every orphan among its descendants, so that those that set up their own session
are found as its children.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Set
from contextlib import suppress

from devices.executors.orphans import parent_of
from devices.reader import SysReader


def end_group(group: int, signal_number: signal.Signals) -> None:
    """Signal every process of a group; nothing happens when it is gone."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal_number)


def end_strays(task_id: str, living: Set[int], reader: SysReader) -> bool:
    """Kill adopted processes of a task and reap them; return whether any was found.

    living: the direct commands, left alone. A process that wiped its environment belongs to no task we can
    name: it goes when no other command runs.
    """
    found = False
    for pid in children_of(os.getpid(), reader) - living:
        if living and not _belongs(pid, task_id, reader):
            continue
        found = True
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        with suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)
    return found


def children_of(pid: int, reader: SysReader) -> frozenset[int]:
    """Return the direct children of a process with one thread, zombies among them.

    The kernel keeps a list for the asking; where it was built without one, every process is looked at.
    """
    listed = reader.data(f"/proc/{pid}/task/{pid}/children").value
    if listed is not None:
        return frozenset(int(child) for child in listed.split())
    others = (int(name) for name in reader.names("/proc").or_else(()) if name.isdecimal())
    return frozenset(other for other in others if parent_of(other, reader) == pid)


def _belongs(pid: int, task_id: str, reader: SysReader) -> bool:
    environment = reader.data(f"/proc/{pid}/environ").value
    if not environment:  # a zombie has none: it only waits to be reaped
        return True
    return f"SKERRY_TASK_ID={task_id}".encode() in environment.split(b"\0")
