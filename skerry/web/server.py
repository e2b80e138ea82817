"""Running an application on its listeners, and stopping it in order."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from aiohttp import web

from skerry.listening import Listener
from skerry.web.access import Access
from skerry.web.app import ACCESS
from skerry.web.door import DOOR, HEAD_TIMEOUT_S, connection_limit
from skerry.web.listeners import BACKLOG, Bound, bind

log = logging.getLogger(__name__)

#: How long the rest of a body that was refused is still read, so that its sender reads the answer.
LINGER_S = 2.0


class Server:
    """A running application. addresses: what to tell people, `unix:<path>` or `http(s)://host:port`."""

    def __init__(
        self, runner: web.AppRunner, bounds: Sequence[Bound], listening: Sequence[asyncio.Server]
    ) -> None:
        """Hold what serve() started."""
        self._runner = runner
        self._listening = listening
        self._own_files = {b.unix_path: _inode(b.unix_path) for b in bounds if b.unix_path is not None}
        self.addresses = tuple(bound.address for bound in bounds)
        self.ports = tuple(bound.port for bound in bounds if bound.port)

    async def stop(self) -> None:
        """Take no new requests, let those in work end (at most the grace time), close; idempotent."""
        for path, inode in self._own_files.items():
            if _inode(path) == inode:  # never a successor's
                path.unlink(missing_ok=True)
        for listening in self._listening:
            listening.close()
        await self._runner.cleanup()

    async def __aenter__(self) -> Server:
        """Return the running server."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop."""
        await self.stop()


async def serve(
    app: web.Application,
    listeners: Sequence[Listener],
    *,
    grace_s: float = 5.0,
    limit: int | None = None,
    head_timeout_s: float = HEAD_TIMEOUT_S,
) -> Server:
    """Start the application on every listener, or on none.

    grace_s: how long stop() lets requests in work go on.  limit: of connections at once; None: what the
    process can afford.  head_timeout_s: what a new connection gets to send its first request's head.
    Raises SettingsError that names the address that cannot be had and says what to do.
    """
    access: Access = app[ACCESS]
    bounds: list[Bound] = []
    try:
        for listener in listeners:
            bounds.append(bind(listener, access))
    except BaseException:
        for bound in bounds:
            _undo(bound)
        raise
    runner = web.AppRunner(
        app,
        access_log=None,
        shutdown_timeout=grace_s,
        handle_signals=False,
        lingering_time=min(grace_s, LINGER_S),
    )
    await runner.setup()
    assert runner.server is not None
    door = app[DOOR]
    door.open(runner.server, limit=limit or connection_limit(), head_timeout_s=head_timeout_s)
    loop = asyncio.get_running_loop()
    listening = []
    for bound in bounds:
        listening.append(await loop.create_server(door, sock=bound.sock, ssl=bound.tls, backlog=BACKLOG))
        log.info("listening on %s", bound.address)
    return Server(runner, bounds, listening)


def _undo(bound: Bound) -> None:
    bound.sock.close()
    if bound.unix_path is not None:
        bound.unix_path.unlink(missing_ok=True)


def _inode(path: Path) -> int | None:
    try:
        return path.stat().st_ino
    except FileNotFoundError:
        return None
