"""One executor child as the agent sees it: started, watched, spoken to, ended.

Owns a single life of the process.

It never starts another: that is the executor's decision.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import secrets
import signal
import socket
import subprocess
from collections.abc import Callable
from typing import Any

import msgspec

from devices.executors.channel import (
    Cancel,
    ChannelError,
    Fault,
    FromChild,
    Heartbeat,
    Load,
    Result,
    Run,
    ToChild,
    encode,
    parent_decoder,
)
from devices.executors.orphans import end_marked
from devices.executors.spawned import Spawned, Tail, signal_name
from devices.settings import ChildSettings
from skerry.errors import DeviceError

_log = logging.getLogger(__name__)

_READ_BYTES = 1 << 16
_STDERR_TAIL_BYTES = 2048


class ChildLost(DeviceError):
    """The executor child is gone."""


class Child:
    """A running child. Make one with `start_child`; after `lost` is done it is of no use."""

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        settings: ChildSettings,
        marker: str,
    ) -> None:
        """marker: environment entry of this child and of everything it starts."""
        loop = asyncio.get_running_loop()
        self._process = Spawned(process)
        self.pid = process.pid
        #: Set to the reason when the child is gone and nothing it started is left.
        self.lost: asyncio.Future[str] = loop.create_future()
        #: Called with the reason before any attempt hears of it.
        self.on_lost: Callable[[str], None] = lambda reason: None
        self._reader, self._writer = reader, writer
        self._settings = settings
        self._marker = marker
        self._numbers = itertools.count(1)
        self._results: dict[int, asyncio.Future[Result]] = {}
        self._ready: asyncio.Future[None] = loop.create_future()
        self._heard_s = loop.time()
        self._reason = ""
        self._stderr = Tail(_STDERR_TAIL_BYTES)
        self._complaining = asyncio.create_task(self._stderr.follow(process.stderr))
        self._life = asyncio.create_task(self._live())

    @property
    def is_lingering(self) -> bool:
        """Decide whether the process is still there although it was killed: it hangs inside the kernel."""
        return self.lost.done() and not self._process.exited.done()

    async def ready(self, within_s: float) -> None:
        """Wait until the child has loaded its runtime.  Raises ChildLost."""
        either: list[asyncio.Future[Any]] = [self._ready, self.lost]
        await asyncio.wait(either, timeout=within_s, return_when=asyncio.FIRST_COMPLETED)
        if not self._ready.done():
            self.kill(f"not ready within {within_s:g} s")
            raise ChildLost(await asyncio.shield(self.lost))

    def run(self, message: Run) -> tuple[int, asyncio.Future[Result]]:
        """Start an attempt; return its number and the future of its result, which may raise ChildLost.

        Raises ChannelError when the message is too large.
        """
        number = next(self._numbers)
        frame = encode(msgspec.structs.replace(message, run=number))
        future: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        self._results[number] = future
        self._write(frame)
        return number, future

    def cancel(self, number: int) -> None:
        """Ask for the end of an attempt."""
        self.send(Cancel(run=number))

    def send(self, message: ToChild) -> None:
        """Queue a message.  Raises ChannelError when it is too large."""
        self._write(encode(message))

    def _write(self, frame: bytes) -> None:
        if not self._writer.is_closing():  # a child that is gone is noticed by who listens
            self._writer.write(frame)

    def kill(self, reason: str) -> None:
        """Kill the child; every attempt on it is lost for this reason."""
        self._reason = self._reason or reason
        if not self._process.exited.done():  # else the number may be another process's by now
            os.kill(self.pid, signal.SIGKILL)

    async def end(self) -> None:
        """Close the channel, so that the child ends by itself, and wait until it is gone."""
        self._reason = self._reason or "the executor was stopped"
        self._writer.close()
        await asyncio.wait({self.lost}, timeout=self._settings.kill_grace_s)
        self.kill(self._reason)
        await asyncio.shield(self.lost)

    async def _live(self) -> None:
        watching = asyncio.create_task(self._watch())
        try:
            await self._listen()
        except ChannelError as error:
            self.kill(f"broken channel: {error}")
        except ConnectionError as error:
            # It ended with a message of ours unread. How it ended says more than the socket does.
            _log.debug("channel of process %d: %s", self.pid, error)
        finally:
            watching.cancel()
        await self._bury()

    async def _listen(self) -> None:
        decoder = parent_decoder()
        while data := await self._reader.read(_READ_BYTES):
            self._heard_s = asyncio.get_running_loop().time()
            for message in decoder.feed(data):
                self._handle(message)

    def _handle(self, message: FromChild) -> None:
        if isinstance(message, Result):
            future = self._results.pop(message.run, None)
            if future is not None and not future.done():
                future.set_result(message)
        elif isinstance(message, Heartbeat):
            if message.ready and not self._ready.done():
                self._ready.set_result(None)
        elif isinstance(message, Fault):
            self.kill(message.reason)

    async def _watch(self) -> None:
        """Kill a child that has been silent too long."""
        loop = asyncio.get_running_loop()
        every_s, limit_s = self._settings.heartbeat_s, self._settings.heartbeat_timeout_s
        while True:
            asleep_since = loop.time()
            await asyncio.sleep(every_s)
            if loop.time() - asleep_since > every_s + limit_s / 2:
                self._heard_s = loop.time()  # it was us who slept: what the child said is still unread
            if loop.time() - self._heard_s > limit_s:
                self.kill(f"no heartbeat for {limit_s:g} s")

    async def _bury(self) -> None:
        """Wait for the process's end, end what it left behind, then tell every attempt."""
        self._writer.close()
        await self._exit()
        await asyncio.to_thread(end_marked, self._marker)
        await asyncio.wait({self._complaining}, timeout=self._settings.kill_grace_s)
        self._complaining.cancel()
        reason = self._reason or self._epitaph(self._process.exited.result())
        self.on_lost(reason)
        self.lost.set_result(reason)
        for future in self._results.values():
            if not future.done():
                future.set_exception(ChildLost(reason))
        self._results.clear()

    async def _exit(self) -> None:
        """Wait for the end; kill when that takes long; give up when even that does not help."""
        exited = self._process.exited
        await asyncio.wait({exited}, timeout=self._settings.kill_grace_s)
        if not exited.done():
            self.kill("closed its channel and did not end")
            await asyncio.wait({exited}, timeout=self._settings.kill_grace_s)
        if not exited.done():
            self._reason += "; it hangs inside the kernel and cannot be killed"

    def _epitaph(self, code: int) -> str:
        last = self._stderr.text().strip().rpartition("\n")[2][:300]
        how = f"was killed by {signal_name(-code)}" if code < 0 else f"ended with exit code {code}"
        return f"the executor child {how}" + (f": {last}" if last else "")


async def start_child(load: Load, settings: ChildSettings, marker: str) -> Child:
    """Start a child and hand it load; it is ready only after `ready`.

    Raises ChildLost when it cannot be started.

    marker: the agent's environment entry, by which the next agent finds what this one left behind.
    The calling thread must live as long as the child: the kernel ends the child with it.
    """
    own = f"SKERRY_EXECUTOR={secrets.token_hex(8)}"
    try:
        ours, theirs = socket.socketpair()
    except OSError as error:
        raise ChildLost(f"no channel: {error}") from error
    try:
        with theirs:
            process = _spawn(settings.program, theirs, _environment(marker, own, load.threads))
        reader, writer = await asyncio.open_connection(sock=ours)
        child = Child(process, reader, writer, settings, own)
    except OSError as error:
        ours.close()
        raise ChildLost(f"{settings.program[0]} could not be started: {error}") from error
    child.send(load)
    return child


def _spawn(
    program: tuple[str, ...], end: socket.socket, environment: dict[str, str]
) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [*program, str(end.fileno()), str(os.getpid())],
        pass_fds=(end.fileno(),),
        env=environment,
        stdin=subprocess.DEVNULL,
        # Vendor libraries print there; the protocol has its own descriptor.
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )


def _environment(marker: str, own: str, threads: int) -> dict[str, str]:
    """Inherit only what Python needs; pools of numeric libraries are sized before they load."""
    kept = ("PATH", "LANG", "LC_ALL", "HOME", "TMPDIR", "LD_LIBRARY_PATH", "VIRTUAL_ENV")
    environment = {name: os.environ[name] for name in kept if name in os.environ}
    for pool in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        environment[pool] = str(threads)
    for entry in (marker, own):
        name, _, value = entry.partition("=")
        environment[name] = value
    return environment
