"""Content by hash, for operators (token) and enrolled nodes (a request signed with their key)."""

from __future__ import annotations

import asyncio

from aiohttp import web

from cloud_coordinator.api.office import Office, office
from skerry.documents import BlobStored
from skerry.errors import IdentityError
from skerry.ids import is_content_hash
from skerry.problem import problem
from skerry.signed_http import NODE_HEADER, SIGNATURE_HEADER, check_signed
from skerry.web import Answer, Route, json_response
from skerry.web.app import ACCESS

CHUNK_BYTES = 256 * 1024
_BYTES = "application/octet-stream"


async def get(request: web.Request) -> web.StreamResponse:
    """Send content, or a range of it."""
    here, name = _enter(request)
    path = await asyncio.to_thread(here.blobs.path, name)
    return web.FileResponse(path, headers={"Content-Type": _BYTES})


async def head(request: web.Request) -> web.StreamResponse:
    """Tell whether the content is here, and its size."""
    here, name = _enter(request)
    return web.Response(headers={"Content-Length": str(here.blobs.size(name)), "Content-Type": _BYTES})


async def put(request: web.Request) -> web.StreamResponse:
    """Store content under its hash: verified, synced, whole or not at all."""
    here, name = _enter(request)
    status = 200 if here.blobs.has(name) else 201
    await _make_room(here, request.content_length or CHUNK_BYTES)
    with await asyncio.to_thread(here.blobs.receive, name) as sink:
        async for chunk in request.content.iter_chunked(CHUNK_BYTES):
            await asyncio.to_thread(sink.write, chunk)
        await asyncio.to_thread(sink.commit)
    return json_response(BlobStored(hash=name, size_bytes=here.blobs.size(name)), status=status)


async def _make_room(here: Office, size_bytes: int) -> None:
    """Remove what nobody needs, when the quota asks for it."""
    if here.blobs.used_bytes + size_bytes <= here.blobs.quota_bytes:
        return
    referenced = await here.ask(lambda core: core.referenced())
    await asyncio.to_thread(
        here.blobs.collect,
        referenced,
        grace_s=here.settings.content.keep_s,
        now=here.clock.now(),
        room_bytes=size_bytes,
    )


def _enter(request: web.Request) -> tuple[Office, str]:
    """Let an enrolled node or an operator in.  Raises problem 401, 403, 422."""
    here = office(request)
    if NODE_HEADER in request.headers:
        try:
            check_signed(request.headers, request.method, request.path, key_of=here.runtime.gate.key_of)
        except IdentityError as error:
            claimed = request.headers[NODE_HEADER]
            known = claimed if here.runtime.gate.key_of(claimed) else "unknown"
            here.runtime.refuse(known, "http_signature", str(error))
            raise
    else:
        request.app[ACCESS].check(request, is_open=False)
    name = request.match_info["hash"]
    if not is_content_hash(name):
        raise problem(422, f"{name[:80]!r} is not of the form sha256:<64 hex digits>", field="hash")
    return here, name


_SIGNED = {
    NODE_HEADER: "the node's name, when a node asks",
    SIGNATURE_HEADER: "its signature over node, method and path, hex",
}
_PATH = "/v1/blobs/{hash}"
ROUTES = (
    Route(
        method="GET",
        path=_PATH,
        handler=get,
        summary="Get content, or a range of it.",
        headers={"Range": "one range of bytes", **_SIGNED},
        answers=(
            Answer(200, "The content.", media_type=_BYTES),
            Answer(206, "The range.", media_type=_BYTES),
        ),
        refusals=(403, 404, 416, 422),
        is_open=True,
    ),
    Route(
        method="HEAD",
        path=_PATH,
        handler=head,
        summary="Is the content here, and how large is it?",
        headers=_SIGNED,
        answers=(Answer(200, "Yes.", media_type=_BYTES),),
        refusals=(403, 404, 422),
        is_open=True,
    ),
    Route(
        method="PUT",
        path=_PATH,
        handler=put,
        summary="Store content under its hash.",
        body_media_type=_BYTES,
        headers=_SIGNED,
        answers=(
            Answer(201, "It is on disk.", BlobStored),
            Answer(200, "It was here already.", BlobStored),
        ),
        refusals=(403, 422, 507),
        is_open=True,
    ),
)
