"""Rounds in the coordinator's process: serves the workers of runs, keeps them alive, takes replies in.

Owns the ledger's thread, the workers' socket and the supervisors. Imports neither flwr nor torch: those live
in the workers, which know nothing of nodes' links and can be killed at any moment.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import msgspec

from federation.rounds.courier import Courier, Roster
from federation.rounds.ledger import Entry, Refusal, RoundLedger, Run, Version
from federation.rounds.office import Office
from federation.rounds.replies import ReplyDoor
from federation.rounds.session import serve
from federation.rounds.supervisor import Supervisor, WorkerCommand
from federation.values import FINAL_RUN_STATES, Refused, Reply, RunSpec, RunState
from skerry.blobs import BlobStore
from skerry.clock import Clock, SystemClock
from skerry.errors import FederationError, InvalidTransition, SkerryError
from skerry.ids import check_name

T = TypeVar("T")
_log = logging.getLogger(__name__)


class RunReport(msgspec.Struct, frozen=True, kw_only=True):
    """One run for people and programs."""

    run: Run
    versions: tuple[Version, ...]
    entries: tuple[Entry, ...]
    refusals: tuple[Refusal, ...]
    eligible: tuple[str, ...]  #: now; empty when the register cannot be read


class RoundService:
    """Runs, from the coordinator's event loop. `open()` first, `close()` last."""

    def __init__(
        self,
        *,
        ledger: RoundLedger,
        blobs: BlobStore,
        courier: Courier,
        roster: Roster,
        worker: WorkerCommand,
        directory: Path,
        clock: Clock | None = None,
    ) -> None:
        """directory: of this process alone (0700): the workers' socket is made in it."""
        self._socket = directory / "rounds.sock"
        self._worker = worker
        self._clock = clock or SystemClock()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="rounds")
        self._office = Office(ledger, blobs, courier, roster, self._clock)
        self._supervisors: dict[str, Supervisor] = {}
        self._changes: dict[str, asyncio.Event] = defaultdict(asyncio.Event)
        self._door = ReplyDoor(self._receive)
        self._server: asyncio.Server | None = None
        self._sessions: set[asyncio.Task[None]] = set()

    async def open(self) -> None:
        """Begin to serve, and go on with every run that is not final.

        Raises FederationError when the socket cannot be made.
        """
        self._socket.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._socket.unlink(missing_ok=True)
        try:
            before = os.umask(0o177)
            try:
                self._server = await asyncio.start_unix_server(self._accept, self._socket)
            finally:
                os.umask(before)
        except OSError as error:
            raise FederationError(f"{self._socket} cannot be made: {error.strerror}") from error
        for run in await self.runs():
            if run.state not in FINAL_RUN_STATES:
                self._supervise(run.spec.run_id)

    async def close(self) -> None:
        """Stop the workers, keep every run as it is."""
        for supervisor in list(self._supervisors.values()):
            await supervisor.stop()
        for session in list(self._sessions):
            session.cancel()
        if self._server is not None:
            self._server.close()
        await asyncio.gather(*self._sessions, return_exceptions=True)
        await self._door.close()
        self._socket.unlink(missing_ok=True)
        await self.call(self._office.close)
        self._thread.shutdown()

    # --- for people and the command line -------------------------------------------------------------

    async def start(self, spec: RunSpec) -> Run:
        """Write the run down and start its worker.

        Raises SpecError for an id that may not stand in a topic, FederationError when it is taken or when the
        base is not in the content store.
        """
        check_name(spec.run_id, what="run")
        run = await self.call(lambda: self._office.create(spec, self._clock.wall_s()))
        self._supervise(spec.run_id)
        return run

    async def resume(self, run_id: str) -> Run:
        """See to it that the run's worker runs.  Raises FederationError when the run is unknown or final."""
        run = await self.call(lambda: self._office.going_on(run_id))
        self._supervise(run_id)
        return run

    async def cancel(self, run_id: str, reason: str = "cancelled") -> Run:
        """End a run: its worker is killed, its open instructions are withdrawn.

        Raises FederationError when the run is unknown or final.
        """
        await self.call(lambda: self._office.going_on(run_id))
        run = await self.finish(run_id, RunState.CANCELLED, reason)
        if supervisor := self._supervisors.pop(run_id, None):
            await supervisor.stop()
        return run

    async def runs(self) -> list[Run]:
        """Return every run, newest first."""
        return await self.call(self._office.ledger.runs)

    async def show(self, run_id: str) -> RunReport:
        """Return all that is known of one run.  Raises FederationError for an unknown id."""
        return await self.call(lambda: self._report(run_id))

    async def watch(self, run_id: str, *, every_s: float = 5.0) -> AsyncIterator[RunReport]:
        """Yield a report now, after each change and at least every_s, until the run is final."""
        while True:
            changed = self._changes[run_id]
            report = await self.show(run_id)
            yield report
            if report.run.state in FINAL_RUN_STATES:
                return
            await self.happens(changed, every_s)

    async def wait(self, run_id: str) -> Run:
        """Return the run once it is final."""
        async for report in self.watch(run_id):
            if report.run.state in FINAL_RUN_STATES:
                return report.run
        raise FederationError(f"the run {run_id} is not watched any more")

    def worker_pid(self, run_id: str) -> int | None:
        """Return the process id of the run's worker while it runs."""
        supervisor = self._supervisors.get(run_id)
        return supervisor.pid if supervisor else None

    # --- for what carries instructions ---------------------------------------------------------------

    async def on_reply(self, replies: Sequence[Reply]) -> list[Refused | None]:
        """Store replies durably, before returning; None for each that was kept, else why it was not.

        The sender may forget the reply either way. Raises StorageFailed when nothing could be written: then
        the sender keeps it.
        """
        return await self._door.put(replies)

    def nodes_changed(self) -> None:
        """Say that the roster changed: runs that wait for nodes look again."""
        for event in list(self._changes.values()):
            event.set()
        self._changes.clear()

    async def _receive(self, replies: Sequence[Reply]) -> list[Refused | None]:
        outcomes = await self.call(lambda: self._office.receive(replies, self._clock.wall_s()))
        for run_id in {reply.run_id for reply in replies}:
            self.changed(run_id)
        return outcomes

    # --- for sessions --------------------------------------------------------------------------------

    async def call(self, work: Callable[[], T]) -> T:
        """Do something on the ledger's thread."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    def changed(self, run_id: str) -> None:
        """Wake whoever waits for news of a run."""
        if event := self._changes.pop(run_id, None):
            event.set()

    def next_change(self, run_id: str) -> asyncio.Event:
        """Return what will be set at the next change of a run. Taken before a look, it misses nothing."""
        return self._changes[run_id]

    async def happens(self, event: asyncio.Event, timeout_s: float) -> None:
        """Return when the event is set, or after timeout_s."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(event.wait(), timeout_s)

    def wall_s(self) -> float:
        """Return the wall clock, for display."""
        return self._clock.wall_s()

    async def finish(self, run_id: str, state: RunState, reason: str) -> Run:
        """Make a run final and withdraw what is out.  Raises InvalidTransition when it is final already."""
        run = await self.call(lambda: self._office.end(run_id, state, reason, self.wall_s()))
        self.changed(run_id)
        return run

    @property
    def office(self) -> Office:
        """What the sessions decide with; on the ledger's thread only."""
        return self._office

    # --- inside --------------------------------------------------------------------------------------

    def _report(self, run_id: str) -> RunReport:
        ledger = self._office.ledger
        run = self._office.known(run_id)
        return RunReport(
            run=run,
            versions=tuple(ledger.versions(run_id)),
            entries=tuple(ledger.entries(run_id)),
            refusals=tuple(ledger.refusals(run_id)),
            eligible=self._office.eligible_now(run),
        )

    def _supervise(self, run_id: str) -> None:
        known = self._supervisors.get(run_id)
        if known is not None and known.is_running:
            return
        supervisor = Supervisor(
            self._worker,
            self._socket,
            run_id,
            progress=lambda: self.call(lambda: self._office.progress(run_id)),
            give_up=lambda reason: self._give_up(run_id, reason),
        )
        self._supervisors[run_id] = supervisor
        supervisor.start()

    async def _give_up(self, run_id: str, reason: str) -> None:
        _log.error("run %s failed: %s", run_id, reason)
        with contextlib.suppress(InvalidTransition):  # it was cancelled meanwhile
            await self.finish(run_id, RunState.FAILED, reason)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._sessions.add(task)
        try:
            await serve(self, reader, writer)
        except (SkerryError, OSError, asyncio.IncompleteReadError) as error:
            _log.info("a run's worker left: %s", error)
        except asyncio.CancelledError:
            _log.debug("a run's worker is let go")
        finally:
            self._sessions.discard(task)
            writer.close()
