"""Routes for the node itself and for events as they happen (server-sent events)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Any

import msgspec
from aiohttp import web

from edge_agent.api.keys import FACADE
from skerry.documents import NodeReport, PolicyStatus, TaskChanged
from skerry.ids import parse_task_id
from skerry.web import STOPPING, Answer, Route, json_response, read_query

#: A comment line this often keeps a quiet stream open in middle boxes, and finds listeners that are gone.
KEEP_ALIVE_S = 15.0


class EventsQuery(msgspec.Struct, frozen=True, kw_only=True):
    """task: only changes of these tasks."""

    task: tuple[str, ...] = ()


async def node(request: web.Request) -> web.StreamResponse:
    """Return what the node has and does now."""
    return json_response(await request.app[FACADE].report())


async def policy(request: web.Request) -> web.StreamResponse:
    """Return how the learned policy stands here."""
    return json_response(request.app[FACADE].policy_status())


async def events(request: web.Request) -> web.StreamResponse:
    """Stream changes of tasks until the listener goes or the agent stops."""
    wanted = frozenset(parse_task_id(text) for text in read_query(request, EventsQuery).task)
    response = web.StreamResponse(
        headers={"Content-Type": "text/event-stream", "Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    )
    with request.app[FACADE].watch() as changes:
        await response.prepare(request)
        await response.write(b": listening\n\n")
        async with aclosing(_frames(changes, wanted, request.app[STOPPING])) as frames:
            async for frame in frames:
                await response.write(frame)
    await response.write_eof()
    return response


async def _frames(
    changes: AsyncIterator[TaskChanged | None], wanted: frozenset[str], stopping: asyncio.Event
) -> AsyncGenerator[bytes]:
    stopped = asyncio.ensure_future(stopping.wait())
    coming: asyncio.Future[TaskChanged | None] = asyncio.ensure_future(anext(changes))
    try:
        while not stopping.is_set():
            both: set[asyncio.Future[Any]] = {coming, stopped}
            await asyncio.wait(both, timeout=KEEP_ALIVE_S, return_when=asyncio.FIRST_COMPLETED)
            if coming.done():
                frame = _frame(coming.result(), wanted)
                coming = asyncio.ensure_future(anext(changes))
                if frame:
                    yield frame
            else:
                yield b"event: stopping\ndata: {}\n\n" if stopping.is_set() else b": still here\n\n"
    finally:
        stopped.cancel()
        coming.cancel()


def _frame(change: TaskChanged | None, wanted: frozenset[str]) -> bytes:
    if change is None:
        return b"event: missed\ndata: {}\n\n"
    if wanted and change.task_id not in wanted:
        return b""
    return b"event: task\ndata: " + msgspec.json.encode(change) + b"\n\n"


ROUTES = (
    Route(
        method="GET",
        path="/v1/node",
        handler=node,
        summary="This node: devices and their load, link, queue, refusals, alarms, version.",
        answers=(Answer(200, "The node as it is now.", NodeReport),),
    ),
    Route(
        method="GET",
        path="/v1/policy",
        handler=policy,
        summary="The learned policy on this node: where its gate stands, who decided how much, how both did.",
        answers=(Answer(200, "The policy as it stands now.", PolicyStatus),),
    ),
    Route(
        method="GET",
        path="/v1/events",
        handler=events,
        summary="Changes of tasks as server-sent events: `task`, `missed` (too slow a listener), `stopping`.",
        query=EventsQuery,
        answers=(Answer(200, "A stream that goes on.", TaskChanged, "text/event-stream"),),
        refusals=(422,),
    ),
)
