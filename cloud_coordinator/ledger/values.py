"""What the ledger keeps, as frozen values. Owns their meaning; knows nothing of SQL."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from skerry.clock import Instant, is_wall_trusted
from skerry.decision import Decision
from skerry.fence import Fence
from skerry.messages import Lane, Outcome
from skerry.task import TaskSpec


class TaskState(StrEnum):
    """Where a task is, as its home coordinator sees it."""

    PENDING = "pending"  #: offered, waiting for a place
    PLACED = "placed"  #: under a current placement; only its fence may commit the end
    ENDED = "ended"  #: its outcome is committed; it never runs again
    WITHDRAWN = "withdrawn"  #: its submitter cancelled it; it never runs again


FINAL = frozenset({TaskState.ENDED, TaskState.WITHDRAWN})
#: Ends that stand for ever. Any other is a failure: its home dead-letters it, and an operator there may
#: replay it with fresh tries.
FOR_GOOD = frozenset({"succeeded", "expired", "cancelled", "unknown"})


class Moment(msgspec.Struct, frozen=True):
    """A moment that must be comparable after a restart: the boot clock's reading and what the wall said."""

    instant: Instant
    wall_s: float

    def age_s(self, now: Instant, wall_s: float) -> float:
        """Return the seconds since then.

        Within one boot the boot clock tells; over a reboot the wall does, if it was trusted on both sides
        (else 0: nothing ends early because a clock was wrong).
        """
        if self.instant.boot_id == now.boot_id:
            return max(0.0, now.since(self.instant))
        trusted = is_wall_trusted(self.wall_s) and is_wall_trusted(wall_s)
        return max(0.0, wall_s - self.wall_s) if trusted else 0.0


class _Value(msgspec.Struct, frozen=True, kw_only=True):
    """A row."""


class LedgerTask(_Value, frozen=True, kw_only=True):
    """One task. `task` is None for one that never left its node: only its end was reported."""

    task_id: str
    home_node: str
    kind: str
    state: TaskState
    received: Moment
    task: TaskSpec | None = None
    fence: Fence | None = None  #: of the current placement, or of the attempt that ended it
    node: str = ""  #: where it is placed, or where it ended
    command_seq: int = 0  #: of the PlaceTask in that node's command log (control lane)
    placed: Moment | None = None
    placements: int = 0  #: how often it was placed
    excluded: dict[str, str] = {}  #: nodes that refused it, with their reasons
    waits: str = ""  #: why it has no place; what its home was told last
    decision: Decision | None = None  #: the home node's, when it offered the task
    outcome: Outcome | None = None
    attempts: int = 0
    ended_wall_s: float | None = None


def is_for_good(task: LedgerTask) -> bool:
    """Decide whether this end can never be followed by anything else."""
    failed = task.state is TaskState.ENDED and (task.outcome is None or task.outcome.status not in FOR_GOOD)
    return task.state in FINAL and not failed


class Placement(_Value, frozen=True, kw_only=True):
    """One placement of one task. ended: '' while current, else ended, refused, revoked, lapsed, withdrawn."""

    task_id: str
    fence: Fence
    node: str
    placed_wall_s: float
    decision: Decision | None = None
    ended: str = ""
    reason: str = ""
    ended_wall_s: float | None = None


class Token(_Value, frozen=True, kw_only=True):
    """A one-use right to enrol. digest: SHA-256 of id and secret, hex; the secret itself is never kept."""

    digest: str
    made: Moment
    valid_s: float
    node: str = ""  #: the only name it enrols; empty: any
    region: str = ""  #: the only region it enrols into; empty: any
    used_by: str = ""


class Mark(_Value, frozen=True, kw_only=True):
    """Up to where a node's stream is applied, and the last envelope (session, counter) that brought rows."""

    upto: int = 0
    session: int = 0
    counter: int = 0


class DeadLetter(_Value, frozen=True, kw_only=True):
    """A row that could not be applied, kept with the reason."""

    node: str
    lane: Lane
    seq: int
    kind: str
    body: bytes
    reason: str
    wall_s: float
    number: int = 0  #: given by the ledger, grows


class Head(_Value, frozen=True, kw_only=True):
    """One lane of a node's command log: the last row written, the last one its node has applied."""

    last: int = 0
    acked: int = 0


class TaskFilter(_Value, frozen=True, kw_only=True):
    """Which tasks to list, newest first; `before`: ids below it only (the last id of the page before)."""

    state: TaskState | None = None
    node: str = ""  #: placed or ended there
    home_node: str = ""
    limit: int = 50
    before: str = ""


class Counter(_Value, frozen=True, kw_only=True):
    """How often something happened, by node and reason; counts survive restarts."""

    name: str
    node: str
    reason: str
    count: int
