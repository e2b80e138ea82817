"""Routes for content by hash: models and inputs in, large results out."""

from __future__ import annotations

import asyncio

from aiohttp import web

from edge_agent.api.keys import FACADE
from skerry.documents import BlobStored
from skerry.ids import is_content_hash
from skerry.problem import problem
from skerry.web import Answer, Route, json_response

CHUNK_BYTES = 256 * 1024


async def put(request: web.Request) -> web.StreamResponse:
    """Store content under its hash: verified, synced, whole or not at all."""
    name, store = _name(request), request.app[FACADE].blobs
    status = 200 if store.has(name) else 201
    with await asyncio.to_thread(store.receive, name) as sink:
        async for chunk in request.content.iter_chunked(CHUNK_BYTES):
            await asyncio.to_thread(sink.write, chunk)
        await asyncio.to_thread(sink.commit)
    return json_response(BlobStored(hash=name, size_bytes=store.size(name)), status=status)


async def get(request: web.Request) -> web.StreamResponse:
    """Send content, or a range of it."""
    path = await asyncio.to_thread(request.app[FACADE].blobs.path, _name(request))
    return web.FileResponse(path, headers={"Content-Type": "application/octet-stream"})


async def head(request: web.Request) -> web.StreamResponse:
    """Tell whether the content is here, and its size."""
    size = request.app[FACADE].blobs.size(_name(request))
    return web.Response(headers={"Content-Length": str(size), "Content-Type": "application/octet-stream"})


def _name(request: web.Request) -> str:
    name = request.match_info["hash"]
    if not is_content_hash(name):
        raise problem(422, f"{name[:80]!r} is not of the form sha256:<64 hex digits>", field="hash")
    return name


_BYTES = "application/octet-stream"
_PATH = "/v1/blobs/{hash}"
ROUTES = (
    Route(
        method="PUT",
        path=_PATH,
        handler=put,
        summary="Store content under its hash.",
        body_media_type=_BYTES,
        answers=(
            Answer(201, "It is on disk.", BlobStored),
            Answer(200, "It was here already.", BlobStored),
        ),
        refusals=(422, 507),
    ),
    Route(
        method="GET",
        path=_PATH,
        handler=get,
        summary="Get content, or a range of it.",
        headers={"Range": "one range of bytes"},
        answers=(
            Answer(200, "The content.", media_type=_BYTES),
            Answer(206, "The range.", media_type=_BYTES),
        ),
        refusals=(404, 416, 422),
    ),
    Route(
        method="HEAD",
        path=_PATH,
        handler=head,
        summary="Is the content here, and how large is it?",
        answers=(Answer(200, "Yes.", media_type=_BYTES),),
        refusals=(404, 422),
    ),
)
