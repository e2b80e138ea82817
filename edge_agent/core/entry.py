"""One task inside the scheduling window: its phase, and what each phase waits for."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from policy.device_plan import model_of
from skerry.decision import Decision
from skerry.fence import Fence
from skerry.ids import TaskId
from skerry.task import TaskSpec
from task_queue.operations import ClaimedTask


class Phase(StrEnum):
    """Where a claimed task is. Only RUNNING, STOPPING and LOST have a process."""

    WAITING = "waiting"  #: no device takes it now; decided again at `until`
    QUEUED = "queued"  #: decided, in its device's queue
    STARTING = "starting"  #: its start is being committed; room is reserved
    RUNNING = "running"  #: its attempt runs; asked to stop at `until`
    STOPPING = "stopping"  #: asked to stop; by force at `until`
    LOST = "lost"  #: reported as failed, yet its process was not seen to end: its room stays taken
    ENDING = "ending"  #: its process is gone, its end is being committed
    LEAVING = "leaving"  #: its hand-over, refusal, parking or release is being committed


#: Phases in which node memory, processor time and a device slot are taken.
HOLDING = frozenset({Phase.STARTING, Phase.RUNNING, Phase.STOPPING, Phase.LOST})
#: Phases in which there is a process.
ALIVE = frozenset({Phase.RUNNING, Phase.STOPPING, Phase.LOST})
#: Phases in which the task counts against the window.
PENDING = frozenset({Phase.WAITING, Phase.QUEUED})


class Content(StrEnum):
    """Whether what the task needs is here."""

    ABSENT = "absent"  #: not asked for yet
    FETCHING = "fetching"  #: asked for; given up at `content_until`
    FAILED = "failed"  #: could not be had; asked for again at `content_until`
    PRESENT = "present"


@dataclass(slots=True, eq=False)
class Entry:
    """One claimed task; changed by the core only."""

    task_id: TaskId
    task: TaskSpec
    attempt: int  #: attempts so far
    placement: Fence | None
    seq: int
    entered_at: float  #: uptime at its claim, s
    hashes: tuple[str, ...]
    deadline_at: float | None = None  #: uptime at which its deadline passes, s
    phase: Phase = Phase.WAITING
    until: float | None = None  #: uptime at which the phase's way out is taken, s
    content: Content = Content.ABSENT
    content_until: float | None = None
    content_tries: int = 0
    content_message: str = ""
    device_id: str | None = None
    runtime_s: float = 1.0  #: expected, without loading
    is_measured: bool = False  #: whether that rests on runs on this device
    load_s: float = 0.0  #: expected for loading its model, when it is not loaded
    has_to_load: bool = False  #: its model was not loaded when it began
    has_been_placed: bool = False  #: some device of this node was chosen for it before
    decision: Decision | None = None
    waits: int = 0  #: how often in a row no device took it
    waiting_since: float = 0.0
    passed_over_since: float | None = None  #: first time a device had a slot and the node had no room
    fence: Fence | None = None
    started_at: float = 0.0  #: uptime at which room was reserved, s
    #: The store has ended or dropped it while it was on its way: nothing more is committed for it.
    is_gone: bool = False
    stop_reason: str = ""  #: why it was asked to stop, "" when it was not: overtime, shutdown, gone
    #: The same task, claimed again while the process of this attempt was not seen to end.
    successor: ClaimedTask | None = field(default=None, repr=False)

    @property
    def model(self) -> str:
        """What must be loaded for it; empty: nothing."""
        return model_of(self.task)

    @property
    def expected_s(self) -> float:
        """How long its device will be busy with it, once it has begun."""
        return self.runtime_s + (self.load_s if self.has_to_load else 0.0)

    @property
    def order(self) -> tuple[int, float, int]:
        """Its place in a device's queue: priority first, then the shortest, then the oldest."""
        return (-self.task.priority, self.runtime_s, self.seq)
