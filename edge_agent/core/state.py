"""The core's whole state, and the bookkeeping that keeps its sums true. Changed by the core alone."""

from __future__ import annotations

import heapq
from bisect import insort
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec

from edge_agent.core.actions import Action
from edge_agent.core.entry import HOLDING, PENDING, Entry, Phase
from edge_agent.core.limits import Limits
from policy.device_plan import waiting_of
from policy.history import UNKNOWN, History
from policy.port import DeviceView, NodeView, Reserved
from policy.queue_rule import QueueRule
from skerry.clock import Instant
from skerry.ids import TaskId
from skerry.node import Device
from task_queue.operations import ClaimedTask, Operation


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """What does not change while the agent runs. is_enrolled: there is a coordinator to hand over to."""

    node: str
    region: str
    cpu_millicores: int
    memory_bytes: int
    site: str = ""
    labels: dict[str, str] = {}
    is_enrolled: bool = False


@dataclass(slots=True)
class Lane:
    """One device: its queue in order, and what is reserved on it."""

    device: Device
    queue: list[Entry] = field(default_factory=list)
    queued_s: float = 0.0
    running: dict[TaskId, Entry] = field(default_factory=dict)
    history: History = UNKNOWN
    loaded: tuple[str, ...] = ()  #: models that its executor holds, as far as it has told

    @property
    def free_slots(self) -> int:
        """How many more attempts it takes now."""
        return self.device.slots - len(self.running) if self.device.usable else 0


@dataclass(slots=True)
class Storage:
    """Commits on their way, and what the disk refused and must not be forgotten."""

    next_token: int = 1
    in_flight: dict[int, tuple[Operation, ...]] = field(default_factory=dict)
    unsaved: list[Operation] = field(default_factory=list)
    #: Reports that the queue's size cap had no room for; written again at `deferred_until`.
    deferred: list[Operation] = field(default_factory=list)
    deferred_until: float | None = None
    failed_since: float | None = None
    retry_at: float | None = None
    delay_s: float = 0.0

    @property
    def is_ok(self) -> bool:
        """The last answer of the disk was not a refusal."""
        return self.failed_since is None

    @property
    def takes_more(self) -> bool:
        """What has happened is written, so that more may begin."""
        return self.failed_since is None and not self.deferred


@dataclass(slots=True)
class State:
    """Everything the core knows. `entries` holds each claimed task once, whatever its phase."""

    facts: Facts
    limits: Limits
    jitter: Callable[[float], float]  #: upper bound in s → a random delay in [0, bound]
    entries: dict[TaskId, Entry] = field(default_factory=dict)
    lanes: dict[str, Lane] = field(default_factory=dict)
    #: Tasks claimed again whose old attempt is over now: to be taken into the window.
    successors: list[ClaimedTask] = field(default_factory=list)
    pending: int = 0  #: entries in a PENDING phase: what the window bounds
    used_cpu_millicores: int = 0
    used_memory_bytes: int = 0
    storage: Storage = field(default_factory=Storage)
    device_faults: dict[TaskId, int] = field(default_factory=dict)  #: how often a device died under it
    want_claim: bool = True
    claim_in_flight: bool = False
    advance_at: float = 0.0
    advance_in_flight: bool = False
    is_link_up: bool = False
    stop_at: float | None = None  #: set while stopping: when running attempts are asked to end
    has_stopped: bool = False
    timers: list[tuple[float, TaskId]] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    story: deque[tuple[float, str, str]] = field(default_factory=deque)

    @property
    def is_stopping(self) -> bool:
        """The agent was asked to end."""
        return self.stop_at is not None

    def count(self, what: str, by: int = 1) -> None:
        """Add to a counter that the shell shows."""
        self.counts[what] = self.counts.get(what, 0) + by

    def move(self, entry: Entry, phase: Phase, *, until: float | None = None) -> None:
        """Bring an entry into a phase, with the moment of its way out; keeps every sum true."""
        self._leave(entry)
        entry.phase, entry.until = phase, until
        self._enter(entry)
        self.set_timer(entry, until)

    def set_timer(self, entry: Entry, until: float | None) -> None:
        """Have the entry looked at again at `until`."""
        if until is not None:
            heapq.heappush(self.timers, (until, entry.task_id))

    def add(self, entry: Entry) -> None:
        """Take a claimed task in."""
        assert entry.task_id not in self.entries
        self.entries[entry.task_id] = entry
        self._enter(entry)

    def remove(self, entry: Entry) -> None:
        """Let an entry go for good."""
        self._leave(entry)
        del self.entries[entry.task_id]
        self.want_claim = True
        if entry.successor is not None:
            self.successors.append(entry.successor)

    def set_device(self, device: Device) -> None:
        """Take a device as it is now, new or known."""
        lane = self.lanes.get(device.device_id)
        if lane is None:
            self.lanes[device.device_id] = Lane(device)
        else:
            lane.device = device
            if not device.usable:
                lane.loaded = ()

    def _enter(self, entry: Entry) -> None:
        if entry.phase in PENDING:
            self.pending += 1
        if entry.phase in HOLDING:
            self.used_cpu_millicores += entry.task.resources.cpu_millicores
            self.used_memory_bytes += entry.task.resources.memory_bytes
        lane = self.lanes.get(entry.device_id or "")
        if lane is not None and entry.phase is Phase.QUEUED:
            insort(lane.queue, entry, key=lambda queued: queued.order)
            lane.queued_s += entry.runtime_s
        elif lane is not None and entry.phase in HOLDING:
            lane.running[entry.task_id] = entry

    def _leave(self, entry: Entry) -> None:
        if entry.phase in PENDING:
            self.pending -= 1
        if entry.phase in HOLDING:
            self.used_cpu_millicores -= entry.task.resources.cpu_millicores
            self.used_memory_bytes -= entry.task.resources.memory_bytes
        lane = self.lanes.get(entry.device_id or "")
        if lane is not None and entry.phase is Phase.QUEUED:
            lane.queue.remove(entry)
            lane.queued_s = lane.queued_s - entry.runtime_s if lane.queue else 0.0
        elif lane is not None and entry.phase in HOLDING:
            lane.running.pop(entry.task_id, None)

    def has_room(self, entry: Entry) -> bool:
        """Decide whether the node's free memory and processor time allow this attempt now."""
        need = entry.task.resources
        return (
            self.used_cpu_millicores + need.cpu_millicores <= self.facts.cpu_millicores
            and self.used_memory_bytes + need.memory_bytes <= self.facts.memory_bytes
        )

    def view(self, uptime_s: float) -> NodeView:
        """Return the snapshot a decision is made on.

        A task may be decided for a node whose memory is in use now: it waits in its device's queue until
        there is room, which is checked when its turn comes.
        """
        free = max(0, self.facts.memory_bytes - self.used_memory_bytes)
        return self._node_view(
            free_memory_bytes=free,
            free_cpu_millicores=max(0, self.facts.cpu_millicores - self.used_cpu_millicores),
            devices=tuple(_device_view(self.lanes[key], uptime_s, free) for key in sorted(self.lanes)),
        )

    def idle_view(self) -> NodeView:
        """Return the snapshot of this node with nothing to do: what can never run here cannot run on it."""
        free = self.facts.memory_bytes
        devices = [self.lanes[key].device for key in sorted(self.lanes)]
        return self._node_view(
            free_memory_bytes=free,
            free_cpu_millicores=self.facts.cpu_millicores,
            devices=tuple(
                DeviceView(device=device, free_memory_bytes=device.memory_bytes or free) for device in devices
            ),
        )

    def _node_view(
        self, *, free_memory_bytes: int, free_cpu_millicores: int, devices: tuple[DeviceView, ...]
    ) -> NodeView:
        return NodeView(
            node=self.facts.node,
            region=self.facts.region,
            site=self.facts.site,
            labels=self.facts.labels,
            memory_bytes=self.facts.memory_bytes,
            free_memory_bytes=free_memory_bytes,
            free_cpu_millicores=free_cpu_millicores,
            devices=devices,
            queue_rule=QueueRule.PRIORITY,
        )


def _device_view(lane: Lane, uptime_s: float, free_memory_bytes: int) -> DeviceView:
    remaining_s = _remaining_s(lane, uptime_s)
    return DeviceView(
        device=lane.device,
        backlog_s=lane.queued_s + remaining_s,
        remaining_s=remaining_s,
        reserved=tuple(_reserved(entry, uptime_s) for entry in lane.queue),
        running=len(lane.running),
        queued=len(lane.queue),
        free_memory_bytes=lane.device.memory_bytes or free_memory_bytes,
        resident=lane.loaded,
        prediction=lane.history.prediction,
        recent_share=lane.history.share,
        recent_misses=lane.history.misses,
    )


def _reserved(entry: Entry, uptime_s: float) -> Reserved:
    age_s = uptime_s - entry.entered_at
    return waiting_of(
        entry.task,
        runtime_s=entry.runtime_s,
        load_s=entry.load_s,
        age_s=age_s,
        rule=QueueRule.PRIORITY,
    )


def _remaining_s(lane: Lane, uptime_s: float) -> float:
    return sum(max(0.0, e.expected_s - (uptime_s - e.started_at)) for e in lane.running.values())


@dataclass(slots=True)
class Turn:
    """One call of the core: its moment, and the actions it has led to so far."""

    state: State
    now: Instant
    uptime_s: float
    actions: list[Action] = field(default_factory=list)

    def act(self, action: Action) -> None:
        """Ask the shell for something."""
        self.actions.append(action)
