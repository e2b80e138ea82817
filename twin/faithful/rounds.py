"""What works beside the coordinator's core on contents and rounds in a world: the real parts, in one thread.

Owns how they are put together. What takes a process in the service is emulated (rounds_worker.py); their HTTP
is not part of a world.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import msgspec

from cloud_coordinator.core.core import CoordinatorCore
from cloud_coordinator.core.events import CommandsGiven, Event
from cloud_coordinator.rollout.registry import Vetted
from cloud_coordinator.rollout.service import Policies
from cloud_coordinator.rollout.settings import PolicySettings
from cloud_coordinator.rollout.values import PolicyVersion, RolloutSpec, VersionState
from cloud_coordinator.rounds_courier import Commands, LogCourier, RegisterRoster
from cloud_coordinator.rounds_settings import FederationSettings
from cloud_coordinator.rounds_wiring import DATABASE, Rounds
from edge_agent.policy_holder import PolicyRunner
from federation.order import UPDATE, Order
from federation.rounds.service import RoundService
from federation.rounds.session import Session
from federation.rounds.sqlite import sqlite_ledger
from federation.rounds.supervisor import WorkerCommand
from federation.trainer import TrainerContext
from federation.trainers.null import NullTrainer
from federation.values import FINAL_RUN_STATES, INLINE_LIMIT_BYTES, Candidate, Reply, ReplyState
from federation.wire import content_hash, pack, unpack
from policy.baselines.registry import DEFAULT_SCHEDULER, make_scheduler
from policy.gate.state import Stage
from policy.port import Scheduler
from skerry.blobs import BlobStore
from skerry.errors import BlobNotFound, CoordinatorUnreachable
from skerry.messages import Lane
from skerry.policy_manifest import EvaluationSummary, Lineage, PolicyManifest, sign_manifest, verify_manifest
from skerry.round_documents import RoundAsked
from twin.faithful.measures import RolloutFigures
from twin.faithful.rounds_worker import EmulatedWorker
from twin.faithful.staging import RoundFigures
from twin.scenario.language import RolloutPart

if TYPE_CHECKING:
    from twin.faithful.agent import Node
    from twin.faithful.coordinator import Cloud

log = logging.getLogger(__name__)

#: A request over the content interface takes this long, seconds.
REQUEST_S = 0.01
_QUOTA_BYTES = 1 << 30


class WorldRoundService(RoundService):
    """A RoundService whose workers are emulated, and without a socket for them."""

    def __init__(self, **parts: Any) -> None:
        """See RoundService."""
        super().__init__(**parts)
        self._workers: set[asyncio.Task[None]] = set()

    async def open(self) -> None:
        """See RoundService."""
        for run in await self.runs():
            if run.state not in FINAL_RUN_STATES:
                self._supervise(run.spec.run_id)

    def _supervise(self, run_id: str) -> None:
        worker = EmulatedWorker(Session(self, run_id), run_id)
        task = asyncio.create_task(worker.run())
        self._workers.add(task)
        task.add_done_callback(self._workers.discard)


class WorldRounds(Rounds):
    """Rounds in a world: the core is asked in the same thread."""

    def __init__(self, cloud: Cloud, blobs: BlobStore, policies: Policies) -> None:
        """cloud: it runs."""
        self._cloud = cloud
        super().__init__(
            FederationSettings(python=sys.executable),
            cloud.home / "rounds",
            ask=_ask_of(cloud),
            handle=_handle_of(cloud),
            policies=policies,
            blobs=blobs,
            key=cloud.key,
            clock=cloud.machine,
        )
        self._python, self.off = Path(sys.executable), ""

    def die(self) -> None:
        """End with the process."""
        if self._service is not None:
            self._service.office.close()

    def _make_service(self, python: Path) -> RoundService:
        cloud = self._cloud
        thread, runtime, loop = cloud.thread, cloud.runtime, cloud.process.loop
        assert thread is not None
        assert runtime is not None
        assert loop is not None
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)

        def tell(commands: Commands) -> None:
            event = CommandsGiven(commands=tuple(commands), lane=Lane.BACKLOG)
            now, wall_s = cloud.machine.now(), cloud.machine.wall_s()
            actions = thread.do_now(lambda core: core.handle(event, now, wall_s))
            loop.call_soon(runtime.perform, actions)

        def ask(job: Callable[[CoordinatorCore], list[Candidate]]) -> list[Candidate]:
            return thread.do_now(job)

        return WorldRoundService(
            ledger=sqlite_ledger(self._directory / DATABASE),
            blobs=self._blobs,
            courier=LogCourier(tell),
            roster=RegisterRoster(ask, cloud.machine),
            worker=WorkerCommand(python=python),
            directory=self._directory,
            clock=cloud.machine,
        )


class WorldOffice:
    """Contents, policies and rounds of one coordinator process."""

    def __init__(self, cloud: Cloud) -> None:
        """cloud: whose core and disk they use."""
        self.blobs = BlobStore(cloud.home / "content", _QUOTA_BYTES, clock=cloud.machine)
        self.policies = Policies(
            _rollouts_of(cloud), self.blobs, cloud.key, EmulatedVetter(), PolicySettings()
        )
        self.rounds = WorldRounds(cloud, self.blobs, self.policies)
        assert cloud.runtime is not None
        cloud.runtime.on_replies = self.rounds.replies_kept
        self._key = cloud.key
        self._jobs: set[asyncio.Task[Any]] = set()

    def start(self) -> None:
        """Begin; runs that were not over go on."""
        self.policies.start()
        self._do(self.rounds.open())

    def begin_round(self, asked: RoundAsked) -> None:
        """Start a run, as its interface does."""
        self._do(self.rounds.start(asked))

    def begin_rollout(self, asked: RolloutPart) -> None:
        """Offer a version and roll it out, as an operator does."""
        self._do(self._roll_out(asked))

    def die(self) -> None:
        """End with the process."""
        self.rounds.die()

    async def _roll_out(self, asked: RolloutPart) -> None:
        data = asked.version.encode()
        manifest = PolicyManifest(
            file_hash=await asyncio.to_thread(self.blobs.put_bytes, data),
            file_bytes=len(data),
            schema_hash="emulated",
            lineage=Lineage(command=f"emulated {asked.version}"),
            evaluation=EvaluationSummary(),
            golden=(),
        )
        version = await self.policies.add(sign_manifest(manifest, self._key), by="twin")
        while version.state is VersionState.VETTING:
            await asyncio.sleep(1.0)
            version = await self.policies.version(version.policy)
        spec = RolloutSpec(
            policy=version.policy,
            canaries=asked.canaries,
            passes_at=Stage(asked.passes_at),
            wave_s=asked.wave_s,
            silence_s=asked.silence_s,
            patience_s=asked.patience_s,
            may_be_unproven=True,
        )
        await self.policies.begin(spec, by="twin")

    def _do(self, job: Any) -> None:
        task = asyncio.create_task(job)
        self._jobs.add(task)
        task.add_done_callback(self._jobs.discard)


class EmulatedVetter:
    """Finds nothing against a version and compares nothing: evaluating one takes a process. A Vetter."""

    async def vet(self, version: PolicyVersion) -> Vetted:
        """See Vetter."""
        return Vetted()


class WorldRemote:
    """The coordinator's contents as a node reaches them: not while it is cut off, or nobody is there."""

    def __init__(self, node: Node, cloud: Cloud) -> None:
        """node: whose wire it is."""
        self._node, self._cloud = node, cloud

    @asynccontextmanager
    async def get(self, name: str, offset: int) -> AsyncIterator[AsyncIterator[bytes]]:
        """See Remote."""
        blobs = await self._reach()
        if not blobs.has(name):
            raise BlobNotFound(f"the coordinator does not have {name}")
        data = blobs.path(name).read_bytes()[offset:]

        async def chunks() -> AsyncIterator[bytes]:
            yield data

        yield chunks()

    async def has(self, name: str) -> bool:
        """See Remote."""
        return (await self._reach()).has(name)

    async def put(self, name: str, path: Path) -> None:
        """See Remote."""
        (await self._reach()).put_file(path, name=name)

    async def close(self) -> None:
        """See Remote."""

    async def _reach(self) -> BlobStore:
        await asyncio.sleep(REQUEST_S)
        office = self._cloud.office
        network = self._node.world.network
        if office is None or network.is_cut_off(self._node.client_id):
            raise CoordinatorUnreachable("the coordinator cannot be reached (emulated)")
        return office.blobs


class EmulatedTraining:
    """Waits, then has the trainer that learns nothing make an update: the border to the training process.

    A Child.
    """

    def __init__(self, rng: Random, takes_s: tuple[float, float]) -> None:
        """takes_s: virtual seconds, drawn between the two."""
        self.pid: int | None = None
        self._rng, self._takes_s = rng, takes_s

    async def run(self, directory: Path, order: Order, model: Path) -> tuple[Reply, Path | None]:
        """See Child."""
        asked, parameters = order.instruction, unpack(await asyncio.to_thread(model.read_bytes))
        self.pid = 1
        try:
            await asyncio.sleep(self._rng.uniform(*self._takes_s))
        finally:
            self.pid = None
        context = TrainerContext(node=asked.node, version=asked.version, seed=self._rng.getrandbits(48))
        trained, examples, metrics = NullTrainer().train(parameters, asked.config, context)
        packet = pack(trained)
        reply = Reply(
            instruction_id=asked.id,
            run_id=asked.run_id,
            node=asked.node,
            base_version=asked.version,
            num_examples=examples,
            metrics=metrics,
        )
        if len(packet) <= INLINE_LIMIT_BYTES:
            return msgspec.structs.replace(reply, inline=packet), None
        (directory / UPDATE).write_bytes(packet)
        return msgspec.structs.replace(reply, update=content_hash(packet)), directory / UPDATE


def round_figures(office: WorldOffice) -> tuple[RoundFigures, ...]:
    """Return what came of every run, by name."""
    service = office.rounds.service_if_begun()
    if service is None:
        return ()
    ledger = service.office.ledger
    found = []
    for run in sorted(ledger.runs(), key=lambda run: run.spec.run_id):
        entries = ledger.entries(run.spec.run_id)
        counted = [entry for entry in entries if entry.state is ReplyState.ACCEPTED]
        refused: dict[str, int] = {}
        for refusal in ledger.refusals(run.spec.run_id):
            refused[refusal.code] = refused.get(refusal.code, 0) + refusal.count
        found.append(
            RoundFigures(
                name=run.spec.run_id,
                state=run.state.value,
                reason=run.reason,
                version=run.version,
                accepted=len(counted),
                late=sum(entry.is_late for entry in counted),
                refused=dict(sorted(refused.items())),
            )
        )
    return tuple(found)


def rollout_figures(core: CoordinatorCore, paths: Mapping[str, Sequence[str]]) -> tuple[RolloutFigures, ...]:
    """Return where every rollout is, in the order in which they were begun.  paths: the states of each."""
    book = core.rollouts.book
    begun = sorted(book.rollouts.values(), key=lambda one: one.started_wall_s)
    return tuple(
        RolloutFigures(
            version=book.versions[one.policy].manifest.lineage.command.removeprefix("emulated "),
            state=one.state.value,
            reason=one.reason,
            lasted_s=round((one.ended_wall_s or 0.0) - one.started_wall_s, 3) if one.ended_wall_s else None,
            path=tuple(paths.get(one.rollout_id, ())),
        )
        for one in begun
    )


def emulated_policies() -> PolicyRunner:
    """Return a runner for which any file decides as the fallback does: the border to ONNX's runtime."""

    def load(path: Path, manifest: PolicyManifest, trusted_key: str) -> Scheduler | str:
        return verify_manifest(manifest, (trusted_key,)) or make_scheduler(DEFAULT_SCHEDULER)

    return PolicyRunner(load, lambda: 0.0)


def _ask_of(cloud: Cloud) -> Any:
    thread = cloud.thread
    assert thread is not None
    return thread.run


def _handle_of(cloud: Cloud) -> Any:
    thread, runtime, clock = cloud.thread, cloud.runtime, cloud.machine
    assert thread is not None
    assert runtime is not None

    async def handle(event: Event) -> None:
        now, wall_s = clock.now(), clock.wall_s()
        runtime.perform(await thread.run(lambda core: core.handle(event, now, wall_s)))

    return handle


def _rollouts_of(cloud: Cloud) -> Any:
    thread, runtime, clock = cloud.thread, cloud.runtime, cloud.machine
    assert thread is not None
    assert runtime is not None

    async def ask(job: Any) -> Any:
        now, wall_s = clock.now(), clock.wall_s()
        answer, actions = await thread.run(lambda core: core.ask_rollouts(job, now, wall_s))
        runtime.perform(actions)
        return answer

    return ask
