"""Local training at work: takes instructions in, trains one after the other, commits each answer once.

Owns the state's place in the store and when training begins. Live tasks come first: it waits for a quiet
moment and runs in a process that gives way. The link need not be there: what is ready to train trains, and
answers wait in the outbox.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from edge_agent.training_child import Child, ChildFailed
from edge_agent.training_inbox import Asked, TrainingState, aged, begun, ended, error_reply, kept, take
from federation.order import Order
from federation.values import Instruction, Reply, Scalar
from skerry.blobs import BlobStore
from skerry.clock import Clock
from skerry.errors import BlobError, BlobNotFound, QueueError, SkerryError, StorageFailed
from skerry.link.actions import ReceivedRow
from skerry.messages import FederationOver, FederationReply, FederationRequest, Lane, row_of
from task_queue.operations import AppendOutbox, Operation, PutMeta

log = logging.getLogger(__name__)

STATE = "training.state"
TRIES = 3
#: A model or a disk that could not be had is asked for again after this, seconds.
RETRY_S = 5.0
#: How often a busy node is looked at, and how often ages are written down, seconds.
LOOK_S = 0.5
KEEP_TIME_EVERY_S = 600.0

Commit = Callable[..., Awaitable[Any]]


class TrainingService:
    """One node's training. On the agent's event loop."""

    def __init__(
        self,
        held: Any,
        *,
        node: str,
        child: Child,
        directory: Path,
        blobs: BlobStore,
        have: Callable[[str], Awaitable[None]],
        commit: Commit,
        clock: Clock,
        load: Callable[[], float],
        record: Callable[[Path], Awaitable[None]],
        start_below_load: float,
        patience_s: float,
        node_config: dict[str, Scalar],
    ) -> None:
        """held: what the store holds under STATE.

        load: share of the node's processors that tasks use.  record: writes what was recorded to a directory.
        """
        self.state = TrainingState() if held is None else msgspec.convert(held, TrainingState)
        self.trained = 0  #: answers since the start
        self._node, self._child, self._directory = node, child, directory
        self._blobs, self._have, self._commit, self._clock = blobs, have, commit, clock
        self._load, self._record = load, record
        self._start_below_load, self._patience_s = start_below_load, patience_s
        self._node_config = node_config
        self._has_news = asyncio.Event()
        self._worker: asyncio.Task[None] | None = None
        self._job: asyncio.Task[None] | None = None
        self._serving = ""  #: id of the instruction at work

    @property
    def child_pid(self) -> int | None:
        """The training process while it runs."""
        return self._child.pid

    def start(self) -> None:
        """Begin to train what waits."""
        shutil.rmtree(self._directory, ignore_errors=True)  # of a process before this one
        self._worker = asyncio.create_task(self._work())
        self._worker.add_done_callback(_told)

    async def close(self) -> None:
        """Stop in order, while the store is still open: a training that was ended so is no failed try."""
        at_work = self._serving if self.child_pid is not None else ""
        for task in (self._worker, self._job):
            if task is not None:
                task.cancel()
        await asyncio.gather(*filter(None, (self._worker, self._job)), return_exceptions=True)
        if not at_work or self.state.find(at_work) is None:
            return
        self.state = begun(self.state, at_work, by=-1)
        try:
            await self._commit(self._kept())
        except QueueError as error:
            log.warning("a training that was ended in order counts as a try: %s", error)

    def note(self, rows: Sequence[ReceivedRow]) -> list[Operation]:
        """Return what to commit with these rows' mark: the instructions, and answers given at once."""
        wanted = [r.message for r in rows if isinstance(r.message, FederationRequest | FederationOver)]
        if not wanted:
            return []
        self.state, answers = take(self.state, wanted, self._clock.now())
        if self._job is not None and self._serving and self.state.find(self._serving) is None:
            self._job.cancel()
        self._has_news.set()
        return [*map(_row, answers), self._kept()]

    # --- inside ---------------------------------------------------------------------------------------

    async def _work(self) -> None:
        noted_at = self._clock.now()
        while True:
            self._has_news.clear()
            self.state = aged(self.state, self._clock.now())
            if self.state.asked and self._clock.now().since(noted_at) >= KEEP_TIME_EVERY_S:
                noted_at = self._clock.now()
                await self._write()
            if self.state.asked:
                await self._one(self.state.asked[0])
            else:
                await self._has_news.wait()

    async def _one(self, asked: Asked) -> None:
        """Serve one instruction; it is the first again next time unless it is done with."""
        self._serving = asked.request.instruction_id
        self._job = asyncio.create_task(self._serve(asked))
        try:
            await asyncio.wait({self._job})
            if not self._job.cancelled():
                self._job.result()
        except (SkerryError, OSError) as error:
            log.warning("training of run %s does not go on yet: %s", asked.request.run_id, error)
            await self._news_within(RETRY_S)
        finally:
            self._job.cancel()
            self._serving = ""

    async def _serve(self, asked: Asked) -> None:
        request = asked.request
        if asked.tries >= TRIES:
            await self._answer(error_reply(request, f"training was begun {TRIES} times and never ended"))
            return
        try:
            await self._have(request.model)
        except BlobNotFound as error:
            await self._answer(error_reply(request, f"its model is nowhere: {error}"))
            return
        await self._quiet_moment()
        self.state = begun(self.state, request.instruction_id)
        await self._commit(self._kept())
        try:
            await self._answer(await self._train(request))
        except ChildFailed as error:
            log.warning("training of run %s failed: %s", request.run_id, error)
            if error.is_final or asked.tries + 1 >= TRIES:
                await self._answer(error_reply(request, str(error)))

    async def _quiet_moment(self) -> None:
        begin = self._clock.now()
        while self._load() >= self._start_below_load:
            if self._clock.now().since(begin) >= self._patience_s:
                return
            await asyncio.sleep(LOOK_S)

    async def _train(self, request: FederationRequest) -> FederationReply:
        place = self._directory / request.instruction_id
        try:
            place.mkdir(mode=0o700, parents=True, exist_ok=True)
            await self._record(place)
            with self._blobs.holding(request.model):
                model = await asyncio.to_thread(self._blobs.path, request.model)
                order = Order(
                    instruction=_instruction(request, self._node),
                    parent=os.getpid(),
                    node_config=self._node_config,
                )
                reply, update = await self._child.run(place, order, model)
            if update is not None:
                await self._keep(update, reply.update)
            self.trained += 1
            return _said(request, reply)
        finally:
            await asyncio.to_thread(shutil.rmtree, place, True)

    async def _keep(self, update: Path, name: str) -> None:
        """Have the update in the content store, and there until it is long with the coordinator."""
        try:
            await asyncio.to_thread(self._blobs.put_file, update, name=name)
            await asyncio.to_thread(self._blobs.pin, name)
        except BlobError as error:
            raise ChildFailed(f"its update could not be kept: {error}") from error
        self.state, gone = kept(self.state, name)
        for old in gone:
            await asyncio.to_thread(self._blobs.unpin, old)

    async def _answer(self, reply: FederationReply) -> None:
        """Put the answer into the outbox and be done with the instruction, in one commit."""
        self.state = ended(self.state, reply.instruction_id)
        self._serving = ""  # from here on the answer stands, whatever else comes
        await self._write(_row(reply))

    async def _write(self, *operations: Operation) -> None:
        """Commit with the state, again and again while the disk refuses."""
        while True:
            try:
                await self._commit(*operations, self._kept())
                return
            except StorageFailed as error:
                log.warning("training's state is not written yet: %s", error)
                await asyncio.sleep(RETRY_S)

    async def _news_within(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._has_news.wait()
        except TimeoutError:
            return

    def _kept(self) -> PutMeta:
        return PutMeta(name=STATE, value=msgspec.to_builtins(self.state))


def _told(worker: asyncio.Task[None]) -> None:
    if not worker.cancelled() and (error := worker.exception()) is not None:
        log.critical("training has ended by a defect, until the agent starts again", exc_info=error)


def _instruction(request: FederationRequest, node: str) -> Instruction:
    return Instruction(
        id=request.instruction_id,
        run_id=request.run_id,
        version=request.version,
        node=node,
        model=request.model,
        trainer=request.trainer,
        config=request.config,
        ttl_s=request.ttl_s,
        seed=request.seed,
    )


def _said(request: FederationRequest, reply: Reply) -> FederationReply:
    return FederationReply(
        instruction_id=request.instruction_id,
        run_id=request.run_id,
        version=request.version,
        num_examples=reply.num_examples,
        inline=reply.inline,
        update=reply.update,
        metrics=reply.metrics,
        error=reply.error,
    )


def _row(reply: FederationReply) -> AppendOutbox:
    kind, body = row_of(reply)
    return AppendOutbox(lane=Lane.BACKLOG, kind=kind, body=body)
