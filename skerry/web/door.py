"""How many clients a service lets in at once, and how long one may take to say what it wants.

A client that opens connections without end, or never finishes its request, must not take the descriptors
that the service needs for its own work. Knows nothing of routes.
"""

from __future__ import annotations

import asyncio
import resource
from typing import cast

import msgspec
from aiohttp import web
from aiohttp.typedefs import Handler

from skerry.problem import MEDIA_TYPE, problem

#: Connections at once, of all listeners together; less where few descriptors are allowed.
CONNECTION_LIMIT = 1000
#: From connecting to the end of the first request's head.
HEAD_TIMEOUT_S = 30.0
RETRY_AFTER_S = 2
#: What one that is refused gets to ask, so that it reads the answer.
LINGER_S = 1.0


def connection_limit() -> int:
    """Return how many connections this process can afford: half of its descriptors are for its own work."""
    soft, _hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return CONNECTION_LIMIT if soft == resource.RLIM_INFINITY else max(8, min(CONNECTION_LIMIT, soft // 2))


class Door:
    """Makes the protocol of each new connection: the server's own, or one that says `busy` and hangs up."""

    def __init__(self) -> None:
        """Call `open` before the first connection."""
        self._server: web.Server | None = None
        self._limit = 0
        self._head_timeout_s = HEAD_TIMEOUT_S
        self._arriving = 0  #: accepted, and not yet among the server's connections
        self._lingering: set[_Busy] = set()
        self._silent: dict[asyncio.BaseProtocol, float] = {}  #: when each of them came, loop time

    def open(self, server: web.Server, *, limit: int, head_timeout_s: float) -> None:
        """Let clients in to server, which counts its connections."""
        self._server, self._limit, self._head_timeout_s = server, limit, head_timeout_s

    def __call__(self) -> asyncio.Protocol:
        """Return the protocol for a connection that was just accepted."""
        assert self._server is not None
        if len(self._server.connections) + self._arriving >= self._limit:
            return _Busy(self._limit, self._lingering)
        guest = self._server()
        loop = asyncio.get_running_loop()
        self._arriving += 1
        loop.call_soon(loop.call_soon, self._arrived)  # the loop connects it in its next turn
        if not self._silent:
            loop.call_later(self._head_timeout_s / 4, self._sweep)
        self._silent[guest] = loop.time()
        return guest

    def heard(self, guest: asyncio.BaseProtocol) -> None:
        """Take note that a connection has sent a request's head."""
        self._silent.pop(guest, None)

    def _arrived(self) -> None:
        self._arriving -= 1

    def _sweep(self) -> None:
        """Hang up on who has been silent for too long, and forget who has left."""
        loop = asyncio.get_running_loop()
        for guest, since in list(self._silent.items()):
            transport = cast("web.RequestHandler", guest).transport
            if transport is None or loop.time() - since >= self._head_timeout_s:
                del self._silent[guest]
                if transport is not None:
                    transport.abort()
        if self._silent:
            loop.call_later(self._head_timeout_s / 4, self._sweep)


DOOR: web.AppKey[Door] = web.AppKey("DOOR", Door)


@web.middleware
async def note_who_spoke(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Tell the door that this connection has sent a request."""
    request.app[DOOR].heard(request.protocol)
    return await handler(request)


class _Busy(asyncio.Protocol):
    """Says why, and closes when the client has asked, or soon: closed before that, it could not read."""

    def __init__(self, limit: int, lingering: set[_Busy]) -> None:
        self._limit = limit
        self._lingering = lingering
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Answer at once."""
        self._transport = cast("asyncio.Transport", transport)
        if len(self._lingering) >= self._limit // 4 + 1:
            self._transport.abort()
            return
        self._lingering.add(self)
        self._transport.write(_busy_answer(self._limit))
        asyncio.get_running_loop().call_later(LINGER_S, self._transport.close)

    def data_received(self, data: bytes) -> None:
        """The client has asked: what it reads next is the answer."""
        if self._transport is not None:
            self._transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """Make room for the next one."""
        self._lingering.discard(self)


def _busy_answer(limit: int) -> bytes:
    detail = f"{limit} connections are open, which is the limit: close some, or come back"
    body = msgspec.json.encode(problem(503, detail, name="busy", retry_after_s=RETRY_AFTER_S).problem)
    head = (
        "HTTP/1.1 503 Service Unavailable",
        f"Content-Type: {MEDIA_TYPE}",
        f"Content-Length: {len(body)}",
        f"Retry-After: {RETRY_AFTER_S}",
        "Connection: close",
    )
    return "\r\n".join((*head, "", "")).encode() + body
