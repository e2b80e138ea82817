"""What Linux does for children: death with the parent, adoption of grandchildren, no new privileges.

Owns the prctl calls; knows nothing of executors.
"""

from __future__ import annotations

import ctypes
import os
import signal

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_PR_SET_NO_NEW_PRIVS = 38

_libc = ctypes.CDLL(None, use_errno=True)


def die_with_parent(parent: int, signal_number: int = signal.SIGKILL) -> None:
    """Have the kernel send signal_number when the parent thread ends; exit at once when it is gone already.

    parent: its process id, as known before this process was started.
    """
    _prctl(_PR_SET_PDEATHSIG, int(signal_number))
    if os.getppid() != parent:
        os._exit(1)


def adopt_orphans() -> None:
    """Become the parent of every descendant whose own parent ends."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def refuse_new_privileges() -> None:
    """Make set-user-id programs such as sudo powerless in this process and its descendants."""
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)


def _prctl(option: int, value: int) -> None:
    if _libc.prctl(option, ctypes.c_ulong(value), 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
