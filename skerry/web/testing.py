"""The testing kit: an application on real listeners in a thread of its own, for synchronous tests."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Sequence
from types import TracebackType
from typing import Any, TypeVar

from aiohttp import web

from skerry.listening import Listener
from skerry.web.server import Server, serve

T = TypeVar("T")


class ServerThread:
    """Serves an application until the block ends. addresses: as Server tells them."""

    def __init__(
        self,
        build: Callable[[], web.Application],
        listeners: Sequence[Listener],
        *,
        grace_s: float = 2.0,
        **options: Any,
    ) -> None:
        """build: makes the application, called on the server's own event loop.  options: of serve()."""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="server", daemon=True)
        self._thread.start()
        try:
            self.server: Server = self.call(self._start(build, listeners, grace_s, options))
        except BaseException:
            self._end_loop()
            raise
        self.addresses = self.server.addresses
        self.ports = self.server.ports

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the server's loop and return what it returns."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(30)

    def do(self, work: Callable[[], T]) -> T:
        """Call a function on the server's loop and return what it returns."""

        async def run() -> T:
            return work()

        return self.call(run())

    def stop(self) -> None:
        """Stop the server in order, then its loop; idempotent."""
        if self._loop.is_running():
            self.call(self.server.stop())
            self._end_loop()

    @staticmethod
    async def _start(
        build: Callable[[], web.Application],
        listeners: Sequence[Listener],
        grace_s: float,
        options: dict[str, Any],
    ) -> Server:
        return await serve(build(), listeners, grace_s=grace_s, **options)

    def _end_loop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        # What was accepted while the server stopped ends in the loop's next turns, as do closed transports.
        self._loop.run_until_complete(_settle())
        self._loop.close()

    def __enter__(self) -> ServerThread:
        """Return the running server."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop."""
        self.stop()


async def _settle() -> None:
    rest = asyncio.all_tasks() - {asyncio.current_task()}
    if rest:
        await asyncio.wait(rest, timeout=2)
    for _ in range(3):
        await asyncio.sleep(0)
