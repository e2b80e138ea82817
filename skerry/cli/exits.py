"""Exit codes of the command line, and which error leads to which."""

from __future__ import annotations

from enum import IntEnum

from skerry import errors
from skerry.problem import ProblemError


class Exit(IntEnum):
    """What the exit status of every command means."""

    OK = 0  #: it was done
    FAILED = 1  #: the task ended without success
    USAGE = 2  #: wrong words, settings or document; nothing was done
    NOT_FOUND = 3  #: there is no such task, content or node
    UNREACHABLE = 4  #: no service answers there
    REFUSED = 5  #: the service answered and refused (full, busy, not allowed now, no right)
    NOT_YET = 6  #: the waiting time is over; the task goes on
    INTERRUPTED = 130  #: stopped with Ctrl-C


def exit_of(error: errors.SkerryError) -> Exit:
    """Return the exit code of an error that reached the user."""
    match error:
        case errors.TaskFailed():
            return Exit.FAILED
        case errors.SettingsError() | errors.SpecError() | errors.DirectoryInUse():
            return Exit.USAGE
        case errors.TaskNotFound() | errors.BlobNotFound() | errors.PolicyNotFound():
            return Exit.NOT_FOUND
        case errors.ServiceUnreachable():
            return Exit.UNREACHABLE
        case errors.WaitTimedOut():
            return Exit.NOT_YET
        case ProblemError():
            return Exit.NOT_FOUND if error.problem.status == 404 else Exit.REFUSED
        case errors.BlobError():
            return Exit.USAGE
        case _:
            return Exit.REFUSED
