"""Content by hash over HTTP, the same at agent and coordinator: get with ranges, ask, put.

Owns what is read from and written to a content store. Who may do so, and making room, are the service's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import partial

from aiohttp import web

from skerry.blobs import BlobStore
from skerry.documents import BlobStored
from skerry.ids import is_content_hash
from skerry.problem import problem
from skerry.web.requests import json_response
from skerry.web.routes import Answer, Route

CHUNK_BYTES = 256 * 1024
PATH = "/v1/blobs/{hash}"
_BYTES = "application/octet-stream"

#: Lets a request in and returns the store it is for; raises the problem to answer with.
Enter = Callable[[web.Request], BlobStore]
#: Makes room for so many bytes that a request brings.
MakeRoom = Callable[[web.Request, int], Awaitable[None]]
#: Hears the name of what was stored.
Stored = Callable[[web.Request, str], None]


class _Handlers:
    """The handlers of one service's content store."""

    def __init__(self, enter: Enter, make_room: MakeRoom | None, stored: Stored | None) -> None:
        self._enter = enter
        self._stored = stored
        self._make_room = make_room

    async def get(self, request: web.Request) -> web.StreamResponse:
        """Send content, or a range of it."""
        store, name = self._enter(request), _name(request)
        return web.FileResponse(await asyncio.to_thread(store.path, name), headers={"Content-Type": _BYTES})

    async def head(self, request: web.Request) -> web.StreamResponse:
        """Tell whether the content is here, and its size."""
        store, name = self._enter(request), _name(request)
        await asyncio.to_thread(store.path, name)  # whole, and kept: whoever asks is about to rely on it
        return web.Response(headers={"Content-Length": str(store.size(name)), "Content-Type": _BYTES})

    async def put(self, request: web.Request) -> web.StreamResponse:
        """Store content under its hash: verified, synced, whole or not at all."""
        store, name = self._enter(request), _name(request)
        status = 200 if store.has(name) else 201
        if self._make_room is not None:
            await self._make_room(request, request.content_length or CHUNK_BYTES)
        with await asyncio.to_thread(store.receive, name) as sink:
            async for chunk in request.content.iter_chunked(CHUNK_BYTES):
                await asyncio.to_thread(sink.write, chunk)
            await asyncio.to_thread(sink.commit)
        if self._stored is not None:
            self._stored(request, name)
        return json_response(BlobStored(hash=name, size_bytes=store.size(name)), status=status)


def _name(request: web.Request) -> str:
    name = request.match_info["hash"]
    if not is_content_hash(name):
        raise problem(422, f"{name[:80]!r} is not of the form sha256:<64 hex digits>", field="hash")
    return name


_WHOLE = Answer(200, "The content.", media_type=_BYTES)
_RANGE = Answer(206, "The range.", media_type=_BYTES)
_HERE = Answer(200, "Yes.", media_type=_BYTES)
_STORED = Answer(201, "It is on disk.", BlobStored)
_KNOWN = Answer(200, "It was here already.", BlobStored)


def content_routes(
    enter: Enter,
    *,
    make_room: MakeRoom | None = None,
    stored: Stored | None = None,
    headers: Mapping[str, str] | None = None,
    refusals: tuple[int, ...] = (),
    is_open: bool = False,
) -> tuple[Route, ...]:
    """Return the routes of a content store.

    headers, refusals: what `enter` reads and answers beyond the rest.  is_open: `enter` decides who may.
    """
    handlers, shown = _Handlers(enter, make_room, stored), dict(headers or {})
    route = partial(Route, path=PATH, is_open=is_open)
    return (
        route(
            method="GET",
            handler=handlers.get,
            summary="Get content, or a range of it.",
            headers={"Range": "one range of bytes", **shown},
            answers=(_WHOLE, _RANGE),
            refusals=(*refusals, 404, 416, 422),
        ),
        route(
            method="HEAD",
            handler=handlers.head,
            summary="Is the content here, and how large is it?",
            headers=shown,
            answers=(_HERE,),
            refusals=(*refusals, 404, 422),
        ),
        route(
            method="PUT",
            handler=handlers.put,
            summary="Store content under its hash.",
            body_media_type=_BYTES,
            headers=shown,
            answers=(_STORED, _KNOWN),
            refusals=(*refusals, 422, 507),
        ),
    )
