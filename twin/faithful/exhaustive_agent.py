"""One agent of the exhaustive check: the real core, rules, link and uplink over a store in memory.

Owns what of an agent outlives its process, and what begins anew with it. Content, training and learned
policies are not part of it.
"""

from __future__ import annotations

from random import Random
from typing import Any, cast

from devices.port import Report
from edge_agent.core.actions import Action, RunAttempt, StopAttempt
from edge_agent.core.core import AgentCore
from edge_agent.core.entry import HOLDING
from edge_agent.core.events import AttemptEnded, DevicesChanged, Ticked
from edge_agent.core.state import Facts
from edge_agent.decider import PolicyDecider
from edge_agent.homecoming import Homecoming
from edge_agent.runtime_report import StoreNow, device_loads
from edge_agent.training_build import ClosedTraining
from edge_agent.uplink import COMMAND_EPOCH, DEAD_LETTERS, LEASE_S, SESSION_OFFSET, TERM, Identity, Uplink
from policy.baselines.registry import make_scheduler
from policy.guard.without_engine import AllowAll
from policy.profile import RuntimeProfile
from skerry.clock import Instant
from skerry.identity import Enrolment, PrivateKey
from skerry.ids import TaskId
from skerry.link import events as happened
from skerry.link.actions import ReadRows
from skerry.link.edge import EdgeLink, Phase
from skerry.messages import Birth, Lane, Row, State
from skerry.node import Device, Inventory
from skerry.task import TaskSpec
from skerry.topics import COORDINATOR
from skerry.transport.port import Message, Will
from task_queue.memory_store import MemoryStore
from task_queue.operations import Enqueue, Enqueued
from task_queue.store import TaskFilter, TaskRecord
from task_queue.task import State as TaskState
from twin.faithful.exhaustive_steps import CutOffError, StepLoop
from twin.faithful.machine import WORLD_BEGAN_WALL_S

CPU_MILLICORES = 4000
MEMORY_BYTES = 1 << 30
_WAITING = (TaskState.READY, TaskState.DELAYED, TaskState.BLOCKED, TaskState.LEASED)


class StepClock:
    """A clock that stands still until it is set. Clock port."""

    def __init__(self, boot_id: str) -> None:
        """boot_id: of the machine, which is never switched off."""
        self.boot_id = boot_id
        self.uptime_s = 1000.0

    def now(self) -> Instant:
        """See Clock."""
        return Instant(self.boot_id, self.uptime_s)

    def wall_s(self) -> float:
        """See Clock."""
        return WORLD_BEGAN_WALL_S + self.uptime_s


class Halves(Random):
    """Chance that always gives the middle: what is drawn is no choice of the check."""

    def random(self) -> float:
        """Return one half."""
        return 0.5

    def __reduce__(self) -> tuple[type[Halves], tuple[()]]:
        """Be copied without a generator's state."""
        return (Halves, ())


def half(bound: float) -> float:
    """Return the middle of the delays up to a bound."""
    return bound / 2


class Outlet:
    """What was said, in order: a transport that is always up and carries nothing itself."""

    is_up = True

    def __init__(self) -> None:
        """Start empty."""
        self.said: list[tuple[str, bytes, bool]] = []

    def start(self, listener: object) -> None:
        """See Transport."""

    def stop(self) -> None:
        """See Transport."""

    def subscribe(self, topic_filter: str) -> None:
        """See Transport."""

    def publish(self, topic: str, payload: bytes, *, retain: bool = False) -> None:
        """See Transport."""
        self.said.append((topic, payload, retain))

    def hint(self, spread_s: float) -> None:
        """See Transport."""

    def rest(self, for_s: float) -> None:
        """See Transport."""

    def wake(self) -> None:
        """See Transport."""


class StoreRows:
    """Reads the outbox at once; there is no content to wait for."""

    def __init__(self, store: MemoryStore) -> None:
        """store: whose rows."""
        self._store = store

    async def read(self, action: ReadRows) -> tuple[Row, ...]:
        """See OutboxReader."""
        rows = self._store.outbox(
            action.lane, action.after, limit=action.limit, limit_bytes=action.limit_bytes
        )
        self._store.note_sent(action.lane, rows[-1].seq if rows else action.after)
        return tuple(rows)


class StepUplink(Uplink):
    """The real uplink; what it begins is done in the agent's steps."""

    @property
    def command_epoch(self) -> str:
        """The ledger whose commands are applied here, as far as it is known."""
        return self._command_epoch

    def begin(self) -> None:
        """Connect: there is always a broker."""
        self._loop.seen += (self._saw_commit, self.round_trips.saw_commit)
        self.on_up()

    def time_passed(self, state: State) -> None:
        """Do what a tick does."""
        if self.phase is Phase.WELCOMED:
            self._handle(happened.StateChanged(state))
        self._handle(happened.Tick())

    def _begin(self, job: Any) -> None:
        self._loop.begin(job)  # type: ignore[attr-defined] # a StepLoop


class AgentPart:
    """One agent; `step` functions leave it with nothing left to be done."""

    def __init__(self, enrolment: Enrolment, key: PrivateKey, device: Device) -> None:
        """Switch on a machine with one device and an empty store."""
        self.name = enrolment.node
        self.enrolment, self.key, self.device = enrolment, key, device
        self.clock = StepClock(f"boot-{self.name}")
        self.store = MemoryStore(now=self.clock.now(), wall_s=self.clock.wall_s, epoch=f"store-{self.name}")
        self.outlet = Outlet()
        #: What the world sees: ("told", id), ("began", id, fence), ("broke", text).
        self.seen: list[tuple[str, ...]] = []
        self.last_fence: dict[TaskId, str] = {}  #: of the latest attempt begun, by task
        self.will: Will | None = None
        self.starts = 0
        self.spoke_first = False  #: something left this step before its first commit
        self._start()

    # --- its steps

    def restart(self) -> None:
        """Begin a process on what the store holds; the broker says of the old one that it is gone."""
        assert self.will is not None
        self.loop.drop()
        self.outlet.publish(self.will.topic, self.will.payload, retain=self.will.retain)
        self.store.reopen(self.clock.now())
        self._start()

    def submit(self, task_id: TaskId, task: TaskSpec) -> None:
        """Have an application submit a task and hear of it."""
        self.loop.begin(self._submit(task_id, task))

    def hear(self, topic: str, payload: bytes) -> None:
        """Have a message arrive."""
        self.uplink.on_message(
            Message(topic=topic, payload=payload, retained=False, acknowledge=lambda: None)
        )

    def end(self, task_id: TaskId) -> None:
        """Have an attempt succeed."""
        action = self.running.pop(task_id)
        report = Report(status="succeeded", runtime_s=1.0)
        self.loop.post(AttemptEnded(task_id=task_id, fence=action.fence, report=report))

    def time_passed(self) -> None:
        """Do what the clock, which was moved, makes due."""
        self.uplink.time_passed(self._state())
        self.loop.post(Ticked())

    def settle(self, cut_off_at: int = 0) -> None:
        """Do everything that is left to be done.  cut_off_at: see StepLoop; then the process begins anew."""
        self.spoke_first = False
        try:
            self.loop.settle(cut_off_at)
        except CutOffError:
            self.restart()
            self.loop.settle()

    # --- inside

    def _start(self) -> None:
        self.starts += 1
        self.running: dict[TaskId, RunAttempt] = {}
        facts = Facts(
            node=self.name,
            region=self.enrolment.region,
            cpu_millicores=CPU_MILLICORES,
            memory_bytes=MEMORY_BYTES,
            is_enrolled=True,
        )
        decider = PolicyDecider(
            AllowAll(), make_scheduler("min-increase"), RuntimeProfile(), self.clock.wall_s
        )
        core = AgentCore(facts, decider, jitter=half)
        self.loop = StepLoop(core, self.store, self.clock, self._perform)
        self.loop.before_first = self._look_before_first
        self.uplink = self._uplink()
        self.will = self.uplink.will()
        self.loop.post(DevicesChanged(devices=(self.device,)))
        self.uplink.begin()

    def _uplink(self) -> StepUplink:
        store = self.store
        offset = store.meta(SESSION_OFFSET) or 0
        session = store.session + offset
        birth = Birth(
            boot_id=self.clock.boot_id,
            session=session,
            process=f"{self.name}-{self.starts}",
            inventory=Inventory(
                devices=(self.device,),
                cpu_millicores=CPU_MILLICORES,
                memory_bytes=MEMORY_BYTES,
                hardware_id=f"hw-{self.name}",
            ),
            region=self.enrolment.region,
            store_epoch=store.epoch,
            command_epoch=store.meta(COMMAND_EPOCH) or "",
            term=store.meta(TERM) or 0,
        )
        return StepUplink(
            Identity(enrolment=self.enrolment, key=self.key, session=session),
            self.outlet,
            EdgeLink(birth, mark_of=self._mark_of, rng=Halves(), heads=store.depth().written),
            cast(Any, self.loop),  # the part of a CoreLoop that an uplink needs
            cast(Any, StoreRows(store)),
            birth=birth,
            clock=self.clock,
            state_of=self._state_later,
            store_now=self._store_now,
            outgoing=cast(Any, None),  # there is no content
            homecoming=Homecoming(self._fetch, self.loop.commit),
            training=ClosedTraining("not in this check"),
            list_tasks=self._list,
            dead_letters=store.meta(DEAD_LETTERS),
            lease_s=store.meta(LEASE_S) or 0.0,
            session_offset=offset,
        )

    async def _submit(self, task_id: TaskId, task: TaskSpec) -> None:
        (answer,) = await self.loop.commit(Enqueue(task_id=task_id, task=task, wall_s=self.clock.wall_s()))
        if isinstance(answer, Enqueued):
            self.seen.append(("told", task_id))

    def _perform(self, action: Action) -> None:
        match action:
            case RunAttempt():
                before = self.last_fence.get(action.task_id, "")
                self.last_fence[action.task_id] = str(action.fence)
                self.running[action.task_id] = action
                self.seen.append(("began", action.task_id, str(action.fence), before))
            case StopAttempt():
                stopped = self.running.pop(action.task_id, None)
                if stopped is not None:
                    report = Report(status="cancelled", error="cancelled")
                    self.loop.post(AttemptEnded(task_id=action.task_id, fence=stopped.fence, report=report))
            case _:
                pass  # content, alarms and measures change nothing here

    def _look_before_first(self) -> None:
        self.spoke_first = bool(self.outlet.said or self.seen)

    def _state(self) -> State:
        """See state_of: the same, from a store that answers at once."""
        depth, core = self.store.depth(), self.loop.core.state
        loads = device_loads(core, self.clock.uptime_s)
        return State(
            session=self.uplink.session,
            queued=sum(depth.by_state.get(state, 0) for state in _WAITING),
            running=sum(entry.phase in HOLDING for entry in core.entries.values()),
            outbox=sum(depth.outbox.values()),
            free_cpu_millicores=CPU_MILLICORES - core.used_cpu_millicores,
            free_memory_bytes=MEMORY_BYTES - core.used_memory_bytes,
            holds=tuple(self.store.held_placements()),
            device_load={device_id: load.backlog_s for device_id, load in loads.items()},
        )

    async def _state_later(self) -> State:
        return self._state()

    def _store_now(self) -> StoreNow:
        return StoreNow(self.store.epoch, (), {})

    async def _list(self, task_filter: TaskFilter) -> list[TaskRecord]:
        return self.store.find(task_filter)

    async def _fetch(self, name: str) -> None:
        raise AssertionError(f"nothing here refers to content, yet {name} is asked for")

    def _mark_of(self, epoch: str, lane: Lane) -> int:
        return self.store.inbox_mark(COORDINATOR, epoch, lane)
