"""The running agent: the parts at work together, and the face that its HTTP interface sees. Decides nothing.

Parts are built in runtime_build.py; the core decides; this module performs, and starts and stops in order.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractContextManager, suppress
from typing import TYPE_CHECKING, Any

import msgspec

from edge_agent.api.changes import Changes
from edge_agent.core import actions as do
from edge_agent.core.core import AgentCore
from edge_agent.core.events import AttemptEnded, DevicesChanged, Event, RulesChanged, StopRequested
from edge_agent.core.state import State as CoreState
from edge_agent.flight import Recorder
from edge_agent.runtime_attempts import Attempts, present_devices
from edge_agent.runtime_build import Parts, build_content
from edge_agent.runtime_door import refuse_at_the_door
from edge_agent.runtime_loop import CoreLoop
from edge_agent.runtime_queue import QueueQuestions
from edge_agent.runtime_report import damage_alarm, report_of, why_closed
from edge_agent.training_build import Training, build_training
from skerry import __version__
from skerry.blobs import BlobStore
from skerry.documents import ENDED, NodeReport, PolicyStatus, TaskChanged
from skerry.ids import TaskId, TaskIdSource, millisecond_of
from skerry.node import Inventory
from skerry.task import TaskSpec
from task_queue.operations import Cancel, Changed, Enqueue, Enqueued, Refused, Replay
from task_queue.store import TaskFilter, TaskRecord

if TYPE_CHECKING:
    from edge_agent.content import Remote
    from edge_agent.policy_holder import PolicyHolder, PolicyRunner
    from edge_agent.training_child import Child
    from edge_agent.uplink import Uplink
    from skerry.identity import Enrolment
    from skerry.transport.port import Transport

log = logging.getLogger(__name__)

HEALTH_EVERY_S = 0.5
SAVE_PROFILE_EVERY_S = 60.0


class Agent(QueueQuestions):
    """One node's agent on one event loop. `start` and `stop` once each; implements AgentFacade."""

    def __init__(
        self,
        parts: Parts,
        *,
        transport: Transport | None = None,
        remote: Remote | None = None,
        child: Child | None = None,
        runner: PolicyRunner | None = None,
    ) -> None:
        """Take over what was opened; nothing runs yet.

        transport, remote: instead of the settings'.  child: trains instead of a process of its own.
        runner: runs policies instead of ONNX.
        """
        self._runner = runner
        self.parts = parts
        self.child = child
        self._transport = transport
        self.started_at = parts.clock.now()
        self.alarms: dict[str, str] = {}
        self.uplink: Uplink | None = None
        self.policy: PolicyHolder | None = None
        self.training: Training | None = None
        self.measured = 0
        self._changes = Changes()
        self._waiters: dict[TaskId, list[asyncio.Future[None]]] = {}
        self._stopped = asyncio.Event()
        self._suspects: dict[tuple[str, str], str] = {}
        self._chores: list[asyncio.Task[None]] = []
        self._next_look: asyncio.TimerHandle | None = None
        self.recorder = Recorder(
            parts.settings.home / "flight", parts.settings.recorder.max_bytes, version=__version__
        )
        core = AgentCore(
            parts.facts,
            self.recorder.decider(parts.decider),
            jitter=self.recorder.jitter(lambda bound: parts.rng.uniform(0.0, bound)),
            limits=parts.settings.core_limits,
        )
        self.loop = CoreLoop(core, parts.writer, parts.clock, recorder=self.recorder)
        self.loop.perform = self._perform
        self.content = build_content(parts, remote)
        self._attempts = Attempts(parts.executors, parts.blobs, self._attempt_ended, self.content.make_room)
        newest = parts.writer.read(lambda store: store.find(TaskFilter(limit=1))).result()
        floor_ms = max((millisecond_of(record.task_id) for record in newest), default=0)
        self._ids = TaskIdSource(parts.clock.wall_s, floor_ms=floor_ms, random_bits=parts.rng.getrandbits)

    # --- life

    def start(self) -> None:
        """Begin taking tasks; the link, where there is one, begins connecting and nothing waits for it."""
        self.loop.post(DevicesChanged(devices=self.parts.inventory.devices))
        if self.parts.enrolment is not None:
            from edge_agent.runtime_uplink import build_uplink

            self.policy = self._build_policy(self.parts.enrolment)
            self.policy.start()
            self.training = build_training(self)
            self.training.start()
            self.uplink = build_uplink(self, self._transport)
            self.uplink.start()
        self._chores = [asyncio.create_task(self._save_profile())]
        self._watch_health()

    def request_stop(self, grace_s: float) -> None:
        """Claim nothing more and let running attempts end; a second call shortens the grace."""
        self.loop.post(StopRequested(grace_s=grace_s))

    async def wait_stopped(self) -> None:
        """Return when nothing runs and nothing waits to be written; raises what broke core or writer."""
        stopped: asyncio.Future[Any] = asyncio.ensure_future(self._stopped.wait())
        broken = asyncio.wrap_future(self.parts.writer.broken)
        await asyncio.wait({stopped, broken, self.loop.failed}, return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        for failed in (self.loop.failed, broken):
            if failed.done():
                failed.result()
        broken.cancel()

    async def close(self) -> None:
        """End transfers, link and children, write what waits, and close the store."""
        if self._next_look is not None:
            self._next_look.cancel()
        for chore in self._chores:
            chore.cancel()
        await asyncio.gather(*self._chores, return_exceptions=True)
        if self.policy is not None:
            await self.policy.close()
        if self.training is not None:
            await self.training.close()
        await self.content.close()
        if self.uplink is not None:
            await self.uplink.stop()
        await self._attempts.close()
        self.loop.stop()
        self.recorder.close()
        await asyncio.to_thread(self.parts.writer.close)
        await asyncio.sleep(0)  # answers of the last commits reach those who wait for them
        self.parts.profile_cache.save(self.parts.decider.profile, self.measured)
        self.parts.store.close()

    # --- what the interface asks

    @property
    def core(self) -> CoreState:
        """The core's state, to look at."""
        return self.loop.core.state

    @property
    def blobs(self) -> BlobStore:
        """See AgentFacade."""
        return self.parts.blobs

    def content_added(self, name: str) -> None:
        """See AgentFacade. The first offer that names it should not have to wait for its way up."""
        if self.uplink is not None:
            self.uplink.outgoing.soon(name)

    async def submit(self, task: TaskSpec) -> Enqueued | Refused:
        """See AgentFacade. What can never run is refused here, with what is missing."""
        refused = refuse_at_the_door(self.parts, self.core, task)
        if refused is not None:
            return refused
        operation = Enqueue(task_id=self._ids.next(), task=task, wall_s=self.parts.clock.wall_s())
        (answer,) = await self.loop.commit(operation)
        assert isinstance(answer, Enqueued | Refused)
        if isinstance(answer, Enqueued) and answer.is_new:
            self._publish(answer.task_id, "delayed" if task.delay_s else "ready")
        return answer

    async def get(self, task_id: TaskId) -> TaskRecord | None:
        """See AgentFacade."""
        return await asyncio.wrap_future(self.parts.writer.read(lambda store: store.get(task_id)))

    async def wait(self, task_id: TaskId, timeout_s: float) -> TaskRecord | None:
        """See AgentFacade."""
        ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.setdefault(task_id, []).append(ended)
        try:
            record = await self.get(task_id)
            if record is None or record.state.value in ENDED:
                return record
            with suppress(TimeoutError):
                await asyncio.wait_for(ended, timeout_s)
            return await self.get(task_id)
        finally:
            waiters = self._waiters.get(task_id, [])
            if ended in waiters:
                waiters.remove(ended)
            if not waiters:
                self._waiters.pop(task_id, None)

    async def list(self, task_filter: TaskFilter) -> Sequence[TaskRecord]:
        """See AgentFacade."""
        return await asyncio.wrap_future(self.parts.writer.read(lambda store: store.find(task_filter)))

    async def cancel(self, task_id: TaskId, reason: str = "") -> Changed | Refused:
        """See AgentFacade."""
        return await self._change(Cancel(task_id=task_id, reason=reason))

    async def replay(self, task_id: TaskId) -> Changed | Refused:
        """See AgentFacade."""
        return await self._change(Replay(task_id=task_id))

    def watch(self) -> AbstractContextManager[AsyncIterator[TaskChanged | None]]:
        """See AgentFacade."""
        return self._changes.subscription()

    async def report(self) -> NodeReport:
        """See AgentFacade."""
        return await report_of(self)

    def policy_status(self) -> PolicyStatus:
        """See AgentFacade."""
        if self.policy is not None:
            return self.policy.status()
        reason = "this node is not enrolled: nobody sends it a policy"
        fallback = self.parts.decider.scheduler.name
        return PolicyStatus(policy="", version="", state="off", fallback=fallback, reason=reason)

    def _build_policy(self, enrolment: Enrolment) -> PolicyHolder:
        from edge_agent.policy_holder import PolicyHolder  # it brings signatures, as the link does

        parts = self.parts
        holder = PolicyHolder(
            parts.store,
            parts.decider,
            parts.blobs,
            trusted_key=enrolment.coordinator_public_key,
            have=self.content.have,
            commit=self.loop.commit,
            clock=parts.clock,
            rng=parts.rng,
            runner=self._runner,
        )
        self.loop.seen.append(holder.seen)
        return holder

    def not_ready_because(self) -> Sequence[str]:
        """See AgentFacade."""
        reasons = [text for name, text in self.alarms_now().items() if name in ("storage", "rules")]
        if self.core.is_stopping:
            reasons.append("the agent is stopping")
        return [*reasons, *why_closed(self.parts.store)]

    def alarms_now(self) -> dict[str, str]:
        """Return what needs a person's eye, by name."""
        link = {"link": self.uplink.alarm} if self.uplink is not None and self.uplink.alarm else {}
        return {**self.parts.alarms, **damage_alarm(self.parts.store), **self.alarms, **link}

    def inventory_now(self) -> Inventory:
        """Return what the node has, with the devices' present health."""
        devices = present_devices(self.parts.inventory.devices, self._suspects)
        facts = self.parts.facts
        return msgspec.structs.replace(
            self.parts.inventory,
            devices=devices,
            cpu_millicores=facts.cpu_millicores,
            memory_bytes=facts.memory_bytes,
            can_train=self.training is not None and self.training.is_open,
        )

    async def _change(self, operation: Cancel | Replay) -> Changed | Refused:
        (answer,) = await self.loop.commit(operation)
        assert isinstance(answer, Changed | Refused)
        return answer

    # --- what the core asks

    def _perform(self, action: do.Action) -> None:
        match action:
            case do.RunAttempt():
                self._attempts.run(action)
            case do.StopAttempt():
                self._attempts.stop(action)
            case do.FetchContent():
                self.content.fetch(action, self.loop.post)
            case do.LetContentGo():
                self.content.let_go(action.task_id)
            case do.Notify():
                self._publish(action.task_id, action.state.value)
            case do.RaiseAlarm():
                self.alarms[action.name] = action.message
                log.error("%s", action.message, extra={"alarm": action.name})
            case do.ClearAlarm():
                self.alarms.pop(action.name, None)
                log.info("alarm %s is over", action.name)
            case do.RecordRuntime():
                self._record_runtime(action)
            case do.Stopped():
                self._stopped.set()
            case do.Commit():
                raise AssertionError("commits are the core loop's")

    def _publish(self, task_id: TaskId, state: str) -> None:
        self._changes.publish(TaskChanged(task_id=task_id, state=state))
        if state in ENDED:
            for waiter in self._waiters.pop(task_id, []):
                if not waiter.done():
                    waiter.set_result(None)

    def _record_runtime(self, action: do.RecordRuntime) -> None:
        device = next((d for d in self.parts.inventory.devices if d.device_id == action.device_id), None)
        if device is not None:
            profile = self.parts.decider.profile
            profile.observe(action.kind, device, action.runtime_s)
            profile.observe_load(action.model, device, action.load_s)
            self.measured += 1

    # --- chores

    def _attempt_ended(self, event: Event) -> None:
        if isinstance(event, AttemptEnded) and self.policy is not None:
            entry = self.core.entries.get(event.task_id)
            self.policy.ended(event, deadline_at=entry.deadline_at if entry is not None else None)
        if isinstance(event, AttemptEnded) and event.report.status == "device_fault":
            self._look_at_health()  # so that the next decision does not choose the same device again
        self.loop.post(event)

    def _look_at_health(self) -> None:
        suspects = self._attempts.suspects()
        if suspects.keys() == self._suspects.keys():
            return
        before = self.inventory_now().devices
        self._suspects = self.parts.decider.suspects = suspects
        now = self.inventory_now()
        if now.devices != before:
            self.loop.post(DevicesChanged(devices=now.devices))
            if self.uplink is not None:
                self.uplink.describe_devices(now)
        self.loop.post(RulesChanged())

    def _watch_health(self) -> None:
        self._look_at_health()
        self._next_look = asyncio.get_running_loop().call_later(HEALTH_EVERY_S, self._watch_health)

    async def _save_profile(self) -> None:
        while True:
            await asyncio.sleep(SAVE_PROFILE_EVERY_S)
            self.recorder.flush()
            profile, measured = self.parts.decider.profile, self.measured
            await asyncio.to_thread(self.parts.profile_cache.save, profile, measured)
