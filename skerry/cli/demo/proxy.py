"""A TCP proxy that can go dark. Owns the demo's and the tests' "cable": it forwards bytes, or swallows them.

Cut, it behaves as a black hole does: connections stay open and accept bytes, and nothing arrives. That is the
outage which neither side is told of.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from types import TracebackType

_CHUNK = 64 * 1024


class BlackHoleProxy:
    """Forwards 127.0.0.1:`port` to a target, on a thread of its own, until it is cut."""

    def __init__(self, target_port: int, target_host: str = "127.0.0.1") -> None:
        """Listen on a free loopback port, forwarding at once."""
        self._target = (target_host, target_port)
        self._loop = asyncio.new_event_loop()
        self._open: asyncio.Event | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self.port = 0
        self.swallowed_bytes = 0
        ready = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(ready,), name="proxy", daemon=True)
        self._thread.start()
        if not ready.wait(timeout=10):
            raise RuntimeError("the proxy did not start within 10 s")

    def cut(self) -> None:
        """Swallow everything from now on, telling neither side."""
        self._loop.call_soon_threadsafe(self._set_open, False)

    def heal(self) -> None:
        """Forward again; connections that lived through the cut are closed, as time-outs would."""
        self._loop.call_soon_threadsafe(self._set_open, True)

    def close(self) -> None:
        """Close every connection and stop the thread."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(timeout=10)

    def __enter__(self) -> BlackHoleProxy:
        """Return the running proxy."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close."""
        self.close()

    def _run(self, ready: threading.Event) -> None:
        asyncio.set_event_loop(self._loop)
        self._open = asyncio.Event()
        self._open.set()
        server = self._loop.run_until_complete(asyncio.start_server(self._serve, "127.0.0.1", 0))
        self.port = server.sockets[0].getsockname()[1]
        ready.set()
        self._loop.run_forever()
        server.close()
        self._close_all()
        tasks = asyncio.all_tasks(self._loop)
        for task in tasks:
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        self._loop.close()

    def _set_open(self, is_open: bool) -> None:
        assert self._open is not None  # set before the thread reported ready
        if not is_open:
            self._open.clear()
        elif not self._open.is_set():
            self._close_all()
            self._open.set()

    def _close_all(self) -> None:
        for writer in tuple(self._writers):
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert self._open is not None
        self._writers.add(writer)
        try:
            await self._open.wait()  # dark: the connection is accepted, and nothing answers
            onward_reader, onward_writer = await asyncio.open_connection(*self._target)
        except OSError:
            self._drop(writer)
            return
        self._writers.add(onward_writer)
        await asyncio.gather(self._pump(reader, onward_writer), self._pump(onward_reader, writer))
        self._drop(writer)
        self._drop(onward_writer)

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert self._open is not None
        with contextlib.suppress(OSError):  # the other side is gone: the pair is closed below
            while chunk := await reader.read(_CHUNK):
                if self._open.is_set():
                    writer.write(chunk)
                    await writer.drain()
                else:
                    self.swallowed_bytes += len(chunk)
        writer.close()

    def _drop(self, writer: asyncio.StreamWriter) -> None:
        self._writers.discard(writer)
        writer.close()
