"""One worker's connection: reads a request, answers it, reads the next. Ends when the worker does."""

from __future__ import annotations

import asyncio
import socket
import struct
from typing import TYPE_CHECKING

from federation.rounds.channel import (
    Answer,
    AskNodes,
    CommitVersion,
    Done,
    Failed,
    Finish,
    Nodes,
    Open,
    Patience,
    Push,
    RefuseReplies,
    Request,
    Take,
    TryAgain,
    WaitForQuorum,
    WaitReplies,
    frame,
    length_of,
    request_of,
)
from skerry.errors import BlobError, FederationError, SkerryError, StorageFailed

if TYPE_CHECKING:
    from federation.rounds.service import RoundService

#: How often the roster is looked at while a run waits for nodes, unless it says itself that it changed.
_ROSTER_EVERY_S = 2.0


async def serve(service: RoundService, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer a worker's requests until it leaves.  Raises SkerryError, OSError, IncompleteReadError."""
    first = await _read(reader)
    if not isinstance(first, Open):
        raise FederationError("a worker must name its run first")
    if _peer_pid(writer) != service.worker_pid(first.run_id):
        raise FederationError("it is not the worker that was started for this run")
    session = Session(service, first.run_id)
    request: Request = first
    while True:
        # Between request and answer the worker says nothing: a read that ends means that it is gone, and what
        # it waited for must not be waited for here.
        following = asyncio.create_task(_read(reader))
        answering = asyncio.create_task(session.answer(request))
        try:
            await asyncio.wait({following, answering}, return_when=asyncio.FIRST_COMPLETED)
            if not answering.done():
                await following
                raise FederationError("it asked again before it had its answer")
            writer.write(frame(answering.result()))
            await writer.drain()
            request = await following
        finally:
            answering.cancel()
            following.cancel()


def _peer_pid(writer: asyncio.StreamWriter) -> int:
    """Return the process on the other end, as the kernel says."""
    connection = writer.get_extra_info("socket")
    pid, _, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    return int(pid)


async def _read(reader: asyncio.StreamReader) -> Request:
    size = length_of(await reader.readexactly(4))
    return request_of(await reader.readexactly(size))


class Session:
    """The requests of one worker."""

    def __init__(self, service: RoundService, run_id: str) -> None:
        self._service = service
        self._office = service.office
        self._run_id = run_id

    async def answer(self, request: Request) -> Answer:
        """Return the answer; a request that cannot be served gets a reason."""
        try:
            return await self._answer(request)
        except (TryAgain, StorageFailed, BlobError) as error:
            return Failed(reason=str(error), is_passing=True)
        except SkerryError as error:
            return Failed(reason=str(error))

    async def _answer(self, request: Request) -> Answer:
        office, run_id, call = self._office, self._run_id, self._service.call
        match request:
            case Open():
                return await call(lambda: office.open_run(run_id))
            case AskNodes():
                return await self._nodes(request.minimum)
            case Push():
                await call(lambda: office.push(run_id, request.instructions))
            case WaitReplies():
                await self._wait(request)
            case Take():
                return await call(lambda: office.take(run_id, request.ids))
            case CommitVersion():
                return await self._commit(request)
            case RefuseReplies():
                await call(lambda: office.refuse(run_id, request.verdicts))
            case WaitForQuorum():
                left_s = await call(lambda: office.wait(run_id, request.reason))
                self._service.changed(run_id)
                return Patience(left_s=left_s)
            case Finish():
                await self._service.finish(run_id, request.state, request.reason)
        return Done()

    async def _nodes(self, minimum: int) -> Nodes:
        while True:
            news = self._service.next_change(self._run_id)
            names, left_s = await self._service.call(lambda: self._office.nodes(self._run_id, minimum))
            if len(names) >= minimum or left_s <= 0:
                return Nodes(names=tuple(names))
            await self._service.happens(news, min(_ROSTER_EVERY_S, left_s))

    async def _wait(self, request: WaitReplies) -> None:
        loop = asyncio.get_running_loop()
        ends = loop.time() + request.timeout_s
        while True:
            news = self._service.next_change(self._run_id)
            there = await self._service.call(lambda: self._office.answered(self._run_id, request.ids))
            left = ends - loop.time()
            if there >= request.minimum or left <= 0:
                return
            await self._service.happens(news, left)

    async def _commit(self, request: CommitVersion) -> Done:
        wall_s = self._service.wall_s()
        model = await self._service.call(
            lambda: self._office.commit(
                self._run_id,
                request.version,
                request.model,
                request.state,
                request.verdicts,
                request.metrics,
                wall_s,
            )
        )
        self._service.changed(self._run_id)
        return Done(model=model)
