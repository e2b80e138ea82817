"""Rounds in a running coordinator: the service with its courier and roster, letters in, policies out.

Owns their life. Where there is no training environment there are no rounds, and this says why; what rounds
need is imported with the first of them, and neither Flower nor torch ever is.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from cloud_coordinator import rounds_inbox
from cloud_coordinator.core.core import CoordinatorCore
from cloud_coordinator.core.events import CommandsGiven
from cloud_coordinator.rollout.service import Policies
from cloud_coordinator.rounds_courier import Commands, FromThread, LogCourier, RegisterRoster
from cloud_coordinator.rounds_export import PolicyChild
from cloud_coordinator.rounds_settings import FederationSettings
from federation.interpreter import find_interpreter
from federation.values import FINAL_RUN_STATES, Candidate, CohortRule, ReplyState, RunSpec, RunState
from skerry.blobs import BlobStore
from skerry.clock import Clock
from skerry.errors import FederationError, SkerryError
from skerry.identity import PrivateKey
from skerry.messages import Lane
from skerry.policy_manifest import Lineage, sign_manifest
from skerry.round_documents import RoundAsked, RoundPolicy

if TYPE_CHECKING:
    from federation.rounds.ledger import Run
    from federation.rounds.service import RoundService, RunReport

log = logging.getLogger(__name__)

POLICY = "federation.policy"
DATABASE = "rounds.db"
RETRY_S = 2.0
#: How often a run is looked at when nothing says that it changed.
LOOK_EVERY_S = 10.0


class Rounds:
    """The rounds of one coordinator. `open` and `close` once each, on its event loop."""

    def __init__(
        self,
        settings: FederationSettings,
        directory: Path,
        *,
        ask: Callable[[Callable[[CoordinatorCore], Any]], Coroutine[Any, Any, Any]],
        handle: Callable[[CommandsGiven], Coroutine[Any, Any, None]],
        policies: Policies,
        blobs: BlobStore,
        key: PrivateKey,
        clock: Clock,
    ) -> None:
        """directory: of rounds alone.  ask: a job on the core.  handle: has the core take an event."""
        self._settings, self._directory = settings, directory
        self._ask, self._handle = ask, handle
        self._policies, self._blobs, self._key, self._clock = policies, blobs, key, clock
        self._service: RoundService | None = None
        self._child: PolicyChild | None = None
        self._letters = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._opening = asyncio.Lock()
        self._python, self.off = find_interpreter(settings.python)

    async def open(self) -> None:
        """Go on with every run that has not ended. A coordinator that never had one begins with its first."""
        if not (self._directory / DATABASE).exists():
            return
        try:
            await self.service()
        except FederationError as error:
            log.error("%s", error)

    async def close(self) -> None:
        """Stop the workers; every run stays as it is."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._service is not None:
            await self._service.close()

    def replies_kept(self) -> None:
        """Answers are on disk: take them soon."""
        self._letters.set()

    async def service(self) -> RoundService:
        """Return the service, begun.  Raises FederationError when there are no rounds here, saying why."""
        async with self._opening:
            if self._python is None:
                raise FederationError(f"rounds are off here: {self.off}")
            if self._service is None:
                try:
                    self._service = await self._begin(self._python)
                except (ImportError, SkerryError, OSError) as error:
                    raise FederationError(f"rounds cannot begin: {error}") from error
            return self._service

    def service_if_begun(self) -> RoundService | None:
        """Return the service, None where no run was ever started."""
        return self._service

    def worker_pid(self, run_id: str) -> int | None:
        """Return the process id of a run's worker while it runs."""
        return None if self._service is None else self._service.worker_pid(run_id)

    async def start(self, asked: RoundAsked) -> Run:
        """Begin a run.  Raises FederationError, PolicyError, SpecError, BlobError."""
        service = await self.service()
        run = await service.start(await self._spec(asked))
        self._spawn(self._follow(service, run.spec.run_id))
        return run

    async def policy(self, run_id: str) -> RoundPolicy:
        """Return what became of a run's last version as a policy."""
        body = await self._ask(lambda core: core.ledger.document(POLICY, run_id))
        return RoundPolicy() if body is None else msgspec.json.decode(body, type=RoundPolicy)

    async def referenced(self) -> frozenset[str]:
        """Return the updates that are not merged yet: of letters, and of replies without a verdict."""
        letters = await self._ask(lambda core: rounds_inbox.waiting(core.ledger, rounds_inbox.LIMIT))
        found = {reply.update for reply in letters.values()}
        if self._service is not None:
            found |= await self._service.call(partial(_unmerged, self._service))
        return frozenset(found - {""})

    # --- inside ---------------------------------------------------------------------------------------

    async def _begin(self, python: Path) -> RoundService:
        service = self._make_service(python)
        export = self._directory / "export"
        self._child = PolicyChild(python, self._blobs, export, time_limit_s=self._settings.export_s)
        await service.open()
        self._spawn(self._take_letters(service))
        self._letters.set()
        for run in await service.runs():
            self._spawn(self._follow(service, run.spec.run_id))
        return service

    def _make_service(self, python: Path) -> RoundService:
        from federation.rounds.service import RoundService
        from federation.rounds.sqlite import sqlite_ledger
        from federation.rounds.supervisor import WorkerCommand

        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        wait = FromThread()

        def tell(commands: Commands) -> None:
            wait(self._handle(CommandsGiven(commands=tuple(commands), lane=Lane.BACKLOG)))

        def ask(job: Callable[[CoordinatorCore], list[Candidate]]) -> list[Candidate]:
            return wait(self._ask(job))

        return RoundService(
            ledger=sqlite_ledger(self._directory / DATABASE),
            blobs=self._blobs,
            courier=LogCourier(tell),
            roster=RegisterRoster(ask, self._clock),
            worker=WorkerCommand(python=python),
            directory=self._directory,
            clock=self._clock,
        )

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.critical("a part of the rounds has ended by a defect", exc_info=error)

    async def _take_letters(self, service: RoundService) -> None:
        while True:
            await self._letters.wait()
            self._letters.clear()
            try:
                while letters := await self._ask(lambda core: rounds_inbox.waiting(core.ledger)):
                    await service.on_reply(list(letters.values()))
                    await self._ask(partial(rounds_inbox.forget, names=tuple(letters)))
            except (SkerryError, TimeoutError) as error:
                log.warning("answers of nodes wait, and are taken later: %s", error)
                await asyncio.sleep(RETRY_S)
                self._letters.set()

    async def _spec(self, asked: RoundAsked) -> RunSpec:
        base, base_policy = "", ""
        if asked.base:
            if asked.trainer != "ppo":
                raise FederationError(f"trainer {asked.trainer} does not begin with a policy: leave base out")
            assert self._child is not None
            base_policy = (await self._policies.version(asked.base)).policy
            base = await self._child.packet_of(base_policy)
        return RunSpec(
            run_id=asked.name or f"round-{secrets.token_hex(3)}",
            trainer=asked.trainer,
            strategy=asked.strategy,
            rounds=asked.rounds,
            quorum=asked.quorum,
            deadline_s=asked.deadline_s,
            patience_s=asked.patience_s,
            seed=asked.seed,
            base=base,
            base_policy=base_policy,
            cohort=CohortRule(nodes=asked.nodes, regions=asked.regions),
            max_staleness=asked.max_staleness,
            config=asked.config,
        )

    async def _follow(self, service: RoundService, run_id: str) -> None:
        """Wait for a run's end and make a policy of what it made."""
        run = await _ended(service, run_id)
        if run.state is not RunState.DONE or run.spec.trainer != "ppo" or run.version == 0:
            return
        if (await self.policy(run_id)).state in ("offered", "failed"):
            return
        await self._note(run_id, RoundPolicy(state="exporting"))
        try:
            policy = await self._offer(await service.show(run_id))
        except (SkerryError, OSError) as error:
            log.error("run %s makes no policy: %s", run_id, error)
            await self._note(run_id, RoundPolicy(state="failed", reason=str(error)[:500]))
        else:
            await self._note(run_id, RoundPolicy(state="offered", policy=policy))

    async def _offer(self, report: RunReport) -> str:
        assert self._child is not None
        last, spec = report.versions[-1], report.run.spec
        lineage = Lineage(
            command=f"skerry round start --trainer {spec.trainer} --rounds {spec.rounds} --seed {spec.seed}",
            seed=spec.seed,
            steps=sum(entry.reply.num_examples for entry in report.entries if entry.reply is not None),
            parent=spec.base_policy,
            run_id=spec.run_id,
            round=last.version,
            contributors=last.accepted,
        )
        manifest = await self._child.policy_of(
            last.model, lineage, devices=self._settings.devices, scenarios=self._settings.scenarios
        )
        signed = sign_manifest(manifest, self._key)
        return (await self._policies.add(signed, by=f"run {spec.run_id}")).policy

    def _note(self, run_id: str, note: RoundPolicy) -> Awaitable[None]:
        body = msgspec.json.encode(note)
        return self._ask(lambda core: core.ledger.put_document(POLICY, run_id, body))


def _unmerged(service: RoundService) -> set[str]:
    """Return the updates that open runs still have to judge; on the round ledger's thread."""
    ledger, waiting = service.office.ledger, (ReplyState.RECEIVED, ReplyState.LATE)
    going_on = [run.spec.run_id for run in ledger.runs() if run.state not in FINAL_RUN_STATES]
    entries = [entry for run_id in going_on for entry in ledger.entries(run_id, states=waiting)]
    return {entry.reply.update for entry in entries if entry.reply is not None}


async def _ended(service: RoundService, run_id: str) -> Run:
    """Return the run once it is final. Reads no more than the run itself, however many take part in it."""
    while True:
        changed = service.next_change(run_id)
        run = await service.call(lambda: service.office.known(run_id))
        if run.state in FINAL_RUN_STATES:
            return run
        await service.happens(changed, LOOK_EVERY_S)
