"""Content by hash, for operators (token) and enrolled nodes (a request signed with their key)."""

from __future__ import annotations

import asyncio

from aiohttp import web

from cloud_coordinator.api.office import office
from cloud_coordinator.core.events import ContentStored
from skerry.blobs import BlobStore
from skerry.errors import IdentityError
from skerry.signed_http import NODE_HEADER, NONCE_HEADER, SIGNATURE_HEADER, check_signed
from skerry.web.app import ACCESS
from skerry.web.content import content_routes


def _enter(request: web.Request) -> BlobStore:
    """Let an enrolled node or an operator in.  Raises problem 401, 403."""
    here = office(request)
    if NODE_HEADER not in request.headers:
        request.app[ACCESS].check(request, is_open=False)
        return here.blobs
    key_of = here.runtime.senders.key_of
    try:
        seen = here.runtime.senders.nonces
        check_signed(request.headers, request.method, request.path, key_of=key_of, seen=seen)
    except IdentityError as error:
        claimed = request.headers[NODE_HEADER]
        here.runtime.refuse(claimed if key_of(claimed) else "unknown", "http_signature", str(error))
        raise
    return here.blobs


async def _make_room(request: web.Request, size_bytes: int) -> None:
    """Remove what nobody needs, when the quota asks for it."""
    here = office(request)
    if here.blobs.used_bytes + size_bytes <= here.blobs.quota_bytes:
        return
    referenced = await here.ask(lambda core: core.referenced()) | await here.rounds.referenced()
    await asyncio.to_thread(
        here.blobs.collect,
        referenced,
        grace_s=here.settings.content.keep_s,
        now=here.clock.now(),
        room_bytes=size_bytes,
    )


def _stored(request: web.Request, name: str) -> None:
    office(request).runtime.post(ContentStored(name))


ROUTES = content_routes(
    _enter,
    make_room=_make_room,
    stored=_stored,
    headers={
        NODE_HEADER: "the node's name, when a node asks",
        NONCE_HEADER: "a random number of 16 bytes that no request bore before, hex",
        SIGNATURE_HEADER: "its signature over node, number, method and path, hex",
    },
    refusals=(403,),
    is_open=True,
)
