"""A process that was started, the future of its exit, and the end of its output. Owns reaping; kills nothing.

asyncio's own processes count as ended only when all their pipes are closed, and a grandchild may hold those
for ever. Here the exit of the process itself is what counts. No thread is needed: the kernel's handle tells.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from typing import IO

_READ_BYTES = 1 << 16


class Spawned:
    """A running process. exited: its exit code, negative for a signal."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        """Watch process from the running event loop."""
        self._loop = asyncio.get_running_loop()
        self._process = process
        self._handle = os.pidfd_open(process.pid)
        self.pid = process.pid
        self.exited: asyncio.Future[int] = self._loop.create_future()
        self._loop.add_reader(self._handle, self._reap)

    def _reap(self) -> None:
        code = self._process.poll()
        if code is None:
            return
        self._loop.remove_reader(self._handle)
        os.close(self._handle)
        if not self.exited.cancelled():
            self.exited.set_result(code)


def signal_name(number: int) -> str:
    """Return what people call a signal; the real-time ones have numbers only."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


class Tail:
    """The end of a stream, and how much of its beginning was dropped."""

    def __init__(self, limit_bytes: int) -> None:
        """Keep at most limit_bytes."""
        self._limit_bytes = limit_bytes
        self._kept = bytearray()
        self.dropped = 0

    def add(self, data: bytes) -> None:
        """Append data, dropping what falls out at the front."""
        self._kept += data
        over = len(self._kept) - self._limit_bytes
        if over > 0:
            self.dropped += over
            del self._kept[:over]

    def text(self) -> str:
        """Return what is kept; bytes that are not UTF-8 are replaced."""
        return self._kept.decode("utf-8", "replace")

    async def follow(self, pipe: IO[bytes] | None) -> None:
        """Read a pipe to its end and close it; cancellation closes it too."""
        reader = asyncio.StreamReader()
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), pipe
        )
        try:
            while data := await reader.read(_READ_BYTES):
                self.add(data)
        finally:
            transport.close()
