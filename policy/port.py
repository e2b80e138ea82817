"""What the agent asks of the policy layer: a guard that rules candidates out, a scheduler that picks one."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Protocol, runtime_checkable

import msgspec

from policy.objective import NOMINAL_DEADLINE_S
from policy.queue_rule import QueueRule
from skerry.decision import Verdict
from skerry.node import Device
from skerry.task import TaskSpec


class Reserved(msgspec.Struct, frozen=True, kw_only=True):
    """A task that waits in a device's queue. Times are expected ones, in seconds from now."""

    runtime_s: float
    load_s: float = 0.0  #: loading its model there, when it is not loaded
    tail_s: float = 0.0  #: from leaving the device to being complete
    model: str = ""
    weight: float = 1.0  #: what a missed deadline of it counts
    deadline_s: float = math.inf  #: from now; negative: passed
    scale_s: float = NOMINAL_DEADLINE_S  #: what its completion time is measured in
    key: float = -math.inf  #: its place: higher keys go first, equals in order of arrival


class Offer(msgspec.Struct, frozen=True, kw_only=True):
    """What the task at hand would be on one device, beyond its run time."""

    load_s: float = 0.0  #: loading its model, when it is not loaded
    tail_s: float = 0.0
    energy_j: float | None = None  #: of the run; None: the device's power × run time, if that is known
    load_j: float = 0.0
    key: float = -math.inf  #: its place in this device's queue


class DeviceView(msgspec.Struct, frozen=True, kw_only=True):
    """One device as it is now. backlog_s: seconds of work already reserved on it (running and queued).

    The fields below free_memory_bytes are for schedulers that look into queues; all have a safe default.
    """

    device: Device
    backlog_s: float = 0.0
    running: int = 0
    queued: int = 0
    free_memory_bytes: int = 0
    remaining_s: float | None = None  #: of what runs; None: not told, backlog_s stands for all
    reserved: tuple[Reserved, ...] = ()  #: what waits, in the order in which it will be taken
    is_doomed_last: bool = False  #: what can no longer meet its deadline is taken behind the rest
    offer: Offer = Offer()
    is_offload: bool = False  #: not a device here but the link to other nodes
    resident: tuple[str, ...] = ()  #: models that are loaded
    free_memory_share: float = 1.0  #: of its memory for models
    prediction: float = 1.0  #: recent measured / expected run time
    recent_share: float = 0.0  #: share of the node's recent tasks that came here
    recent_misses: float = 0.0  #: share of recent tasks here that missed their deadline


class NodeView(msgspec.Struct, frozen=True, kw_only=True):
    """An immutable snapshot of one node for one decision."""

    node: str
    region: str
    site: str = ""
    labels: Mapping[str, str] = {}
    memory_bytes: int = 0  #: what tasks may use when nothing runs; 0: not known, free_memory_bytes stands in
    free_memory_bytes: int = 0
    free_cpu_millicores: int = 0
    devices: tuple[DeviceView, ...] = ()
    queue_rule: QueueRule = QueueRule.FIFO  #: in which order its devices take what is reserved


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """A scheduler's pick. scores and expected_s: one value per given device, in the order given."""

    index: int  #: into the devices given
    reason: str
    scores: tuple[float, ...]  #: 0-100, higher is better
    expected_s: tuple[float, ...]  #: expected completion from now, seconds
    place: int | None = None  #: position in the device's queue; None: where the queue's rule puts it


class Scheduler(Protocol):
    """A traditional scheduler (or a policy): pure, deterministic, ties broken by device_id."""

    @property
    def name(self) -> str:
        """Its name in settings and decisions."""
        ...

    def choose(self, task: TaskSpec, devices: Sequence[DeviceView], runtime_s: Sequence[float]) -> Choice:
        """Pick one of the allowed devices (never empty). runtime_s: expected run time on each, seconds."""
        ...


class Guard(Protocol):
    """Hard rules. Deny comes with the rule's message; rules that cannot be evaluated deny everything."""

    @property
    def revision(self) -> str:
        """Which rules these are (content hash)."""
        ...

    def verdicts(
        self, task: TaskSpec, node: NodeView, devices: Sequence[Device]
    ) -> list[tuple[Verdict, ...]]:
        """Return the rules' words on each device, in order; no denial among them means allowed."""
        ...


@runtime_checkable
class LiveGuard(Guard, Protocol):
    """A guard that also has rules about the present moment (load, free memory), never cached."""

    @property
    def has_live_rules(self) -> bool:
        """Whether live_verdicts can deny anything at all."""
        ...

    def live_verdicts(
        self, task: TaskSpec, node: NodeView, devices: Sequence[Device]
    ) -> list[tuple[Verdict, ...]]:
        """Return what the rules about this moment say on each device, in order."""
        ...
