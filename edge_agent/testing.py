"""The agent's testing kit: the real core on a store, with a clock that moves only when told and no processes.

Commits, attempts and content fetches are performed in order by `World`, which can break each of them. It also
keeps the witness: which attempt had an effect, whatever the store says.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from random import Random

import msgspec

from devices.port import Report
from edge_agent.core.actions import (
    Action,
    Commit,
    FetchContent,
    RaiseAlarm,
    RunAttempt,
    StopAttempt,
    Stopped,
)
from edge_agent.core.check import check
from edge_agent.core.core import AgentCore
from edge_agent.core.events import (
    AttemptEnded,
    CommitFailed,
    Committed,
    ContentMissing,
    ContentReady,
    DevicesChanged,
    Event,
    Observed,
    Ticked,
)
from edge_agent.core.limits import Limits
from edge_agent.core.ruling import Decider
from edge_agent.core.state import Facts
from edge_agent.decider import PolicyDecider
from policy.baselines.registry import DEFAULT_SCHEDULER, make_scheduler
from policy.guard.without_engine import AllowAll
from policy.profile import RuntimeProfile
from skerry.errors import StorageFailed
from skerry.fence import Fence
from skerry.ids import TaskId, TaskIdSource
from skerry.node import Device
from skerry.task import TaskSpec
from skerry.testing import ManualClock
from task_queue.memory_store import MemoryStore
from task_queue.operations import Answer, Enqueue, Operation
from task_queue.store import Store, TaskRecord

CPU = Device(device_id="cpu-0", device_class="cpu", name="processor", executors=("command", "onnx"), slots=2)
NPU = Device(
    device_id="npu-0",
    device_class="npu",
    name="board",
    executors=("onnx", "command"),
    speed=4.0,
    emulated=True,
)
FACTS = Facts(node="edge-1", region="north", cpu_millicores=4000, memory_bytes=1 << 30)


class Behaviour(msgspec.Struct, frozen=True, kw_only=True):
    """What one attempt does. is_deaf: it ends only by force; is_stuck: not even so."""

    takes_s: float = 1.0
    report: Report = Report(status="succeeded", result="ok")
    is_deaf: bool = False
    is_stuck: bool = False


class _Attempt:
    """An attempt that runs in the world."""

    def __init__(self, run: RunAttempt, behaviour: Behaviour, ends_at: float) -> None:
        self.run, self.behaviour, self.ends_at = run, behaviour, ends_at
        self.report = behaviour.report


Behave = Callable[[TaskSpec, Fence, str], Behaviour]


class Disk:
    """A store in memory that outlives the agents that open it: what `World` kills and starts again on."""

    def __init__(self) -> None:
        """Begin empty."""
        self._store: MemoryStore | None = None

    def open(self, clock: ManualClock) -> Store:
        """Open the store as a new process does."""
        if self._store is None:
            self._store = MemoryStore(now=clock.now(), wall_s=clock.wall_s)
        else:
            self._store.reopen(clock.now())
        return self._store


class World:
    """One agent without processes. Every event is followed by the invariant check."""

    def __init__(
        self,
        open_store: Callable[[ManualClock], Store],
        *,
        facts: Facts = FACTS,
        devices: Sequence[Device] = (CPU,),
        behave: Behave = lambda task, fence, device: Behaviour(),
        limits: Limits | None = None,
        decide: Decider | None = None,
        seed: int = 1,
    ) -> None:
        """open_store: opens the same durable state each time, as a restart does."""
        self.clock = ManualClock()
        self.rng = Random(seed)
        self.facts, self.devices, self.behave, self.limits = facts, tuple(devices), behave, limits
        self._open_store = open_store
        self.profile = RuntimeProfile()
        self.decide = decide or PolicyDecider(
            AllowAll(), make_scheduler(DEFAULT_SCHEDULER), self.profile, self.clock.wall_s
        )
        self.ids = TaskIdSource(self.clock.wall_s, random_bits=self.rng.getrandbits)
        self.is_disk_broken: Callable[[Commit], bool] = lambda commit: False
        self.content: dict[str, str] = {}  #: hash → "" when it is here, else why it is not
        self.effects: list[tuple[TaskId, Fence]] = []
        self.alarms: list[RaiseAlarm] = []
        self.has_stopped = False
        self.store = open_store(self.clock)
        self._boot()

    def _boot(self) -> None:
        self.to_do: deque[Action] = deque()
        self.attempts: dict[TaskId, _Attempt] = {}
        self.core = AgentCore(
            self.facts, self.decide, jitter=lambda bound: self.rng.uniform(0, bound), limits=self.limits
        )
        self.post(DevicesChanged(devices=self.devices))

    def kill(self) -> None:
        """End the agent without a word, its children with it, and start it again on what is on disk."""
        self.store.close()
        self.store = self._open_store(self.clock)
        self._boot()

    def post(self, event: Event) -> None:
        """Give the core an event now and queue what it asks for."""
        self.to_do.extend(self.core.handle(event, self.clock.now()))
        check(self.core.state)

    def apply(self, *operations: Operation) -> list[Answer]:
        """Commit from outside the core, as the interface and the link do, and let the core see it."""
        answers = self.store.apply(operations, now=self.clock.now())
        self.post(Observed(operations=operations, answers=tuple(answers)))
        return answers

    def submit(self, *tasks: TaskSpec) -> list[TaskId]:
        """Enqueue tasks and return their ids."""
        ids = [self.ids.next() for _ in tasks]
        self.apply(*(Enqueue(task_id=i, task=t) for i, t in zip(ids, tasks, strict=True)))
        return ids

    def step(self) -> bool:
        """Perform the oldest thing the core asked for; False when there is none."""
        if not self.to_do:
            return False
        self._perform(self.to_do.popleft())
        return True

    def settle(self) -> None:
        """Perform everything that needs no time."""
        while self.step():
            pass

    def run_for(self, seconds: float) -> None:
        """Let time pass, moving from one due thing to the next."""
        end = self.clock.uptime_s + seconds
        self.settle()
        while (due := self._next_due()) <= end:
            self.clock.advance(max(0.0, due - self.clock.uptime_s) + 1e-6)
            self._end_due_attempts()
            self.post(Ticked())
            self.settle()
        self.clock.advance(max(0.0, end - self.clock.uptime_s))

    def get(self, task_id: TaskId) -> TaskRecord:
        """Return one task; it must be there."""
        record = self.store.get(task_id)
        assert record is not None
        return record

    def _next_due(self) -> float:
        ends = [a.ends_at for a in self.attempts.values()]
        return min([self.clock.uptime_s + self.core.next_due_in_s(self.clock.now()), *ends])

    def _end_due_attempts(self) -> None:
        for task_id, attempt in list(self.attempts.items()):
            if attempt.ends_at <= self.clock.uptime_s:
                self._end(task_id, attempt)

    def _end(self, task_id: TaskId, attempt: _Attempt) -> None:
        del self.attempts[task_id]
        if attempt.report.status == "succeeded":
            self.effects.append((task_id, attempt.run.fence))
        self.post(AttemptEnded(task_id=task_id, fence=attempt.run.fence, report=attempt.report))

    def _perform(self, action: Action) -> None:
        match action:
            case Commit():
                self._commit(action)
            case RunAttempt():
                assert action.task_id not in self.attempts, "an attempt runs beside its predecessor"
                behaviour = self.behave(action.task, action.fence, action.device_id)
                ends_at = self.clock.uptime_s + behaviour.takes_s
                self.attempts[action.task_id] = _Attempt(action, behaviour, ends_at)
            case StopAttempt():
                self._stop(action)
            case FetchContent():
                self._fetch(action)
            case RaiseAlarm():
                self.alarms.append(action)
            case Stopped():
                self.has_stopped = True
            case _:
                pass

    def _commit(self, action: Commit) -> None:
        try:
            if self.is_disk_broken(action):
                raise StorageFailed("no space left on device")
            answers = self.store.apply(action.operations, now=self.clock.now())
        except StorageFailed as error:
            self.post(CommitFailed(token=action.token, message=str(error)))
        else:
            self.post(Committed(token=action.token, answers=tuple(answers)))

    def _stop(self, action: StopAttempt) -> None:
        attempt = self.attempts.get(action.task_id)
        if (
            attempt is None
            or attempt.behaviour.is_stuck
            or (attempt.behaviour.is_deaf and not action.by_force)
        ):
            return
        attempt.report = Report(status="cancelled", error="cancelled")
        self._end(action.task_id, attempt)

    def _fetch(self, action: FetchContent) -> None:
        why = next((self.content.get(h, "unknown") for h in action.hashes if self.content.get(h, "?")), "")
        if why:
            is_permanent = why == "unknown"
            self.post(ContentMissing(task_id=action.task_id, message=why, is_permanent=is_permanent))
        else:
            self.post(ContentReady(task_id=action.task_id))
