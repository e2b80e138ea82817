"""What happens to the agent, as facts. The shell reports them in the order in which they happened."""

from __future__ import annotations

import msgspec

from devices.port import Report
from skerry.fence import Fence
from skerry.ids import TaskId
from skerry.node import Device
from task_queue.operations import Answer, Operation


class _Event(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """A fact."""


class Committed(_Event, frozen=True, kw_only=True):
    """A commit of the core's own is on disk."""

    token: int
    answers: tuple[Answer, ...]


class CommitFailed(_Event, frozen=True, kw_only=True):
    """The disk refused a commit of the core's own: nothing of it happened."""

    token: int
    message: str


class Observed(_Event, frozen=True, kw_only=True):
    """Another part of the agent (the interface, the link) has committed these operations."""

    operations: tuple[Operation, ...]
    answers: tuple[Answer, ...]


class ContentReady(_Event, frozen=True, kw_only=True):
    """Everything the task needs is here, verified, and stays until its attempt ended."""

    task_id: TaskId


class ContentMissing(_Event, frozen=True, kw_only=True):
    """The task's content could not be had. is_permanent: nobody has it; trying again is of no use."""

    task_id: TaskId
    message: str
    is_permanent: bool = False


class AttemptEnded(_Event, frozen=True, kw_only=True):
    """An attempt's process is gone. blobs: what its result left in the content store."""

    task_id: TaskId
    fence: Fence
    report: Report
    blobs: tuple[str, ...] = ()


class DevicesChanged(_Event, frozen=True, kw_only=True):
    """These are the devices now, with their health."""

    devices: tuple[Device, ...]


class RulesChanged(_Event, frozen=True, kw_only=True):
    """What was decided may be decided otherwise now."""


class LinkChanged(_Event, frozen=True, kw_only=True):
    """The coordinator can be reached, or no longer."""

    is_up: bool


class Ticked(_Event, frozen=True, kw_only=True):
    """Time went on: at least to what `next_due_in_s` named."""


class StopRequested(_Event, frozen=True, kw_only=True):
    """The agent is to end. grace_s: what running attempts get to finish; 0 on a second signal."""

    grace_s: float


Event = (
    Committed
    | CommitFailed
    | Observed
    | ContentReady
    | ContentMissing
    | AttemptEnded
    | DevicesChanged
    | RulesChanged
    | LinkChanged
    | Ticked
    | StopRequested
)
