"""What the shell is to do, as imperatives. Commit, FetchContent and RunAttempt are answered with an event."""

from __future__ import annotations

import msgspec

from skerry.fence import Fence
from skerry.ids import TaskId
from skerry.task import TaskSpec
from task_queue.operations import Operation
from task_queue.task import State


class _Action(msgspec.Struct, frozen=True, kw_only=True):
    """A thing to do."""


class Commit(_Action, frozen=True, kw_only=True):
    """Apply the operations as one commit, then report Committed or CommitFailed with the token."""

    token: int
    operations: tuple[Operation, ...]


class RunAttempt(_Action, frozen=True, kw_only=True):
    """Run one attempt on a device, then report AttemptEnded. Its start is on disk."""

    task_id: TaskId
    fence: Fence
    task: TaskSpec
    device_id: str


class StopAttempt(_Action, frozen=True, kw_only=True):
    """Make a running attempt end. by_force: asking was of no use."""

    task_id: TaskId
    device_id: str
    by_force: bool = False


class FetchContent(_Action, frozen=True, kw_only=True):
    """Have these contents here and keep them for this task; report ContentReady or ContentMissing in time."""

    task_id: TaskId
    hashes: tuple[str, ...]
    within_s: float


class LetContentGo(_Action, frozen=True, kw_only=True):
    """The task no longer needs its contents kept here."""

    task_id: TaskId


class Notify(_Action, frozen=True, kw_only=True):
    """A task is in another state, durably: tell those who watch it."""

    task_id: TaskId
    state: State


class RaiseAlarm(_Action, frozen=True, kw_only=True):
    """Something needs a person's eye until it is cleared."""

    name: str
    message: str


class ClearAlarm(_Action, frozen=True, kw_only=True):
    """What was raised under this name is over."""

    name: str


class RecordRuntime(_Action, frozen=True, kw_only=True):
    """A success took this long: the next expectation for this kind, and for its model, on this device."""

    kind: str
    device_id: str
    runtime_s: float  #: without loading
    model: str = ""
    load_s: float = 0.0  #: 0: its model was loaded already


class Stopped(_Action, frozen=True, kw_only=True):
    """Nothing runs and nothing waits to be written any more: the agent may close."""


Action = (
    Commit
    | RunAttempt
    | StopAttempt
    | FetchContent
    | LetContentGo
    | Notify
    | RaiseAlarm
    | ClearAlarm
    | RecordRuntime
    | Stopped
)
