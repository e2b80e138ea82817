"""One node of a world: a machine, a disk that outlives its processes, and the real agent when it runs.

Owns starting, killing and asking; decides nothing about when. Devices are emulated.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from devices.port import Job
from edge_agent.core.state import Facts
from edge_agent.decider import PolicyDecider
from edge_agent.profile_cache import ProfileCache
from edge_agent.runtime import Agent
from edge_agent.runtime_build import Parts
from edge_agent.settings import AgentSettings, RecorderSettings
from policy.baselines.registry import make_scheduler
from policy.guard.without_engine import AllowAll
from policy.profile import Measured, RuntimeProfile
from skerry.blobs import BlobStore
from skerry.errors import QueueError
from skerry.identity import Enrolment, PrivateKey
from skerry.lock import DirectoryLock
from skerry.node import Device, Inventory
from skerry.transport.port import Will
from task_queue.limits import Limits
from task_queue.sqlite_store import SqliteStore
from twin.faithful.executor import Behaviour, EmulatedExecutor
from twin.faithful.machine import Machine
from twin.faithful.power import Power
from twin.faithful.shells import COMMIT_S, VirtualWriter
from twin.faithful.transport import Join, LoopTransport, MortalTransport
from twin.faithful.world import World

if TYPE_CHECKING:
    from edge_agent.content import Remote
    from edge_agent.policy_holder import PolicyRunner
    from edge_agent.training_child import Child
    from task_queue.operations import Answer, Operation

_T = TypeVar("_T")


class NodePlan(msgspec.Struct, frozen=True, kw_only=True):
    """What a node of a world is."""

    name: str
    region: str
    devices: tuple[Device, ...]
    cpu_millicores: int = 4000
    memory_bytes: int = 4 << 30
    settings: AgentSettings = AgentSettings()
    limits: Limits = Limits()
    recorder_bytes: int = 0


class RememberedProfile(ProfileCache):
    """Run times kept over restarts without a file: losing them would cost accuracy only."""

    def __init__(self) -> None:
        """Begin with nothing measured."""
        self._measured: list[Measured] = []

    def load(self, profile: RuntimeProfile) -> None:
        """See ProfileCache."""
        profile.load(self._measured)

    def save(self, profile: RuntimeProfile, measured: int) -> None:
        """See ProfileCache."""
        self._measured = profile.dump()


class Node:
    """One node: what runs on it now is `agent`, None while nothing does."""

    def __init__(
        self,
        world: World,
        plan: NodePlan,
        home: Path,
        *,
        enrolment: Enrolment,
        key: PrivateKey,
        behave: Callable[[Job, Random], Behaviour],
        effect: Callable[[Node, Job, str], None],
        remote: Callable[[Node], Remote | None] = lambda node: None,
        child: Callable[[Node], Child | None] = lambda node: None,
        runner: PolicyRunner | None = None,
        hardware: str = "",
        power: Power | None = None,
    ) -> None:
        """home: the node's disk.  behave, effect: see EmulatedExecutor.  hardware: the machine's own name.

        remote, child, runner: see Agent.  power: of a machine that may lose it.
        """
        self.world, self.plan, self.home = world, plan, home
        self.machine = Machine(hardware or plan.name, world.network)
        self.process = world.process(self.machine)
        self.enrolment, self.key = enrolment, key
        self.agent: Agent | None = None
        self.writer: VirtualWriter | None = None
        self.transport: MortalTransport | None = None
        #: How its processes join the network.
        self.join: Join = lambda loop, will: LoopTransport(
            world.network, loop, client_id=self.client_id, will=will
        )
        self.starts = 0
        #: Called with each commit of whatever agent runs here.
        self.committed: Callable[[Node, Sequence[Operation], Sequence[Answer]], None] = lambda *seen: None
        self._slow: list[float] = []
        self.disk_refuses = ""
        self.power = power
        self._runner = runner
        self.is_powered = True
        self.has_lost_power = False
        #: Called once, with the next commit on the disk, before anybody hears of it.
        self.after_commit: Callable[[], None] | None = None
        self._behave, self._effect, self._remote, self._child = behave, effect, remote, child
        self._rng = world.rng(f"node {plan.name}")
        self._profile = RememberedProfile()

    @property
    def name(self) -> str:
        """Its name in the fleet."""
        return self.plan.name

    @property
    def client_id(self) -> str:
        """Its name at the broker."""
        return f"{self.enrolment.fleet}-{self.name}"

    def start(self) -> None:
        """Start the agent on what the disk holds.  Raises what opening raises."""
        assert self.agent is None, f"{self.name} runs already"
        self.starts += 1
        loop = self.world.begin(self.process)
        parts = loop.run_inside(lambda: self._open(loop))
        self.agent = loop.run_inside(lambda: self._assemble(parts))
        loop.run_inside(self.agent.start)

    def kill(self) -> None:
        """End the agent without a word; what it has not committed never happens."""
        agent, self.agent = self.agent, None
        if agent is None:
            return
        assert self.writer is not None
        assert self.transport is not None
        self.writer.die()
        self.transport.die()
        self.world.end(self.process)
        agent.recorder.abandon()
        agent.parts.store.close()
        agent.parts.lock.release()

    def lose_power(self) -> None:
        """Stop as a machine does whose power has gone."""
        self.kill()
        self.is_powered = False
        self.has_lost_power = True

    def boot(self, *, wall_s: float | None = None) -> None:
        """Give it power again; the agent is not started.  wall_s: what its wall clock shows."""
        assert self.power is not None
        self.power.restore()
        self.machine.boot(wall_at_boot_s=wall_s)
        self.is_powered = True

    def slow_down(self, commit_s: float) -> Callable[[], None]:
        """Have synced commits take so long, in this process and the next ones; return what ends it."""
        self._slow.append(commit_s)
        return lambda: self._slow.remove(commit_s)

    def refuse_writes(self, why: str) -> None:
        """Have the disk refuse every commit for this reason; empty: it takes them again."""
        self.disk_refuses = why

    def ask(self, question: Callable[[Agent], Coroutine[Any, Any, _T]], then: Callable[[_T], None]) -> None:
        """Ask the running agent as its interface does; `then` hears the answer, if it is not an error."""
        agent, loop = self.agent, self.process.loop
        if agent is None or loop is None:
            return

        async def job() -> None:
            with suppress(QueueError):  # the interface would say so, and the application asks again
                then(await question(agent))

        loop.run_inside(lambda: loop.create_task(job()))

    def _open(self, loop: Any) -> Parts:
        plan, clock = self.plan, self.machine
        recorder = RecorderSettings(max_bytes=plan.recorder_bytes)
        settings = msgspec.structs.replace(plan.settings, data_dir=str(self.home), recorder=recorder)
        limits = plan.limits
        if self.power is None:  # nothing can be lost with a machine's power: no real disk is waited for
            limits = msgspec.structs.replace(limits, synchronous="off")
        store = SqliteStore.open(
            self.home / "queue.db", now=clock.now(), wall_s=clock.wall_s, reports=True, limits=limits
        )
        self.writer = VirtualWriter(store, clock, loop)
        self.writer.committed = self._saw_commit
        self.writer.refuses = lambda: self.disk_refuses
        if self.power is not None:
            self.writer.is_off = lambda power=self.power: power.is_off  # type: ignore[misc]
        self.writer.commit_s = lambda: max(self._slow, default=COMMIT_S)
        profile = RuntimeProfile()
        self._profile.load(profile)
        guard, scheduler = AllowAll(), make_scheduler(settings.scheduler.name)
        return Parts(
            settings=settings,
            clock=clock,
            rng=self._rng,
            lock=DirectoryLock(self.home),
            facts=Facts(
                node=plan.name,
                region=plan.region,
                cpu_millicores=plan.cpu_millicores,
                memory_bytes=plan.memory_bytes,
                is_enrolled=True,
            ),
            inventory=Inventory(
                devices=plan.devices,
                cpu_millicores=plan.cpu_millicores,
                memory_bytes=plan.memory_bytes,
                hardware_id=f"hw-{self.machine.name}",
            ),
            executors=self._executors(),
            decider=PolicyDecider(guard, scheduler, profile, clock.wall_s),
            profile_cache=self._profile,
            store=store,
            writer=self.writer,
            blobs=BlobStore(self.home / "content", settings.content.quota_bytes, clock=clock),
            mqtt=settings.mqtt,
            enrolment=self.enrolment,
            key=self.key,
        )

    def _saw_commit(self, operations: Sequence[Operation], answers: Sequence[Answer]) -> None:
        self.committed(self, operations, answers)
        after, self.after_commit = self.after_commit, None
        if after is not None:
            after()

    def _executors(self) -> dict[tuple[str, str], EmulatedExecutor]:
        return {
            (device.device_id, executor): EmulatedExecutor(
                device,
                lambda job: self._behave(job, self._rng),
                lambda job, what: self._effect(self, job, what),
            )
            for device in self.plan.devices
            for executor in device.executors
        }

    def _assemble(self, parts: Parts) -> Agent:
        loop = self.process.loop
        assert loop is not None

        def will() -> Will:
            assert agent.uplink is not None  # it is what connects
            return agent.uplink.will()

        self.transport = self.join(loop, will)
        agent = Agent(
            parts,
            transport=self.transport,
            remote=self._remote(self),
            child=self._child(self),
            runner=self._runner,
        )
        return agent
