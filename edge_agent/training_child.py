"""The training child as the agent sees it: a directory in, a reply out, within time and memory.

Owns the process. Knows neither instructions' rules nor the store; the agent itself imports neither flwr nor
torch.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import resource
import signal
from pathlib import Path
from typing import Protocol

import msgspec

from federation.order import INSTRUCTION, MODEL, REPLY, UPDATE, Order
from federation.values import Reply

log = logging.getLogger(__name__)

MODULE = "federation.edge_child"
#: How often the child's memory is looked at, seconds.
LOOK_EVERY_S = 0.5
REPLY_LIMIT_BYTES = 256 * 1024
_LAST_WORDS_BYTES = 2000
_PAGE_BYTES = resource.getpagesize()


class ChildFailed(Exception):
    """The child left no reply. is_final: it would leave none the next time either."""

    def __init__(self, reason: str, *, is_final: bool = False) -> None:
        """reason: for people."""
        super().__init__(reason)
        self.is_final = is_final


class Child(Protocol):
    """Trains, one training at a time."""

    @property
    def pid(self) -> int | None:
        """Of what trains right now."""
        ...

    async def run(self, directory: Path, order: Order, model: Path) -> tuple[Reply, Path | None]:
        """Return the reply and the packet beside it, if it made one.  Raises ChildFailed, OSError."""
        ...


class TrainingChild:
    """Runs one training at a time."""

    def __init__(self, python: Path, *, marker: str, time_limit_s: float, memory_bytes: int) -> None:
        """marker: the entry of the environment by which what this agent left running is found."""
        self._python = python
        self._marker = marker
        self._time_limit_s = time_limit_s
        self._memory_bytes = memory_bytes
        self.pid: int | None = None  #: while it runs

    async def run(self, directory: Path, order: Order, model: Path) -> tuple[Reply, Path | None]:
        """Return the reply and the packet beside it, if it made one.  Raises ChildFailed, OSError.

        directory: what the node recorded is in it.  Cancelled: the child is killed.
        """
        await asyncio.to_thread(_prepare, directory, order, model)
        await self._run(directory)
        return await asyncio.to_thread(_result, directory, order)

    async def _run(self, directory: Path) -> None:
        process = await asyncio.create_subprocess_exec(
            *(str(self._python), "-P", "-m", MODULE, str(directory)),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
            cwd=directory,
            env=self._environment(directory),
            start_new_session=True,
        )
        self.pid = process.pid
        try:
            async with asyncio.timeout(self._time_limit_s):
                words, status = await asyncio.gather(_last_words(process), self._watched(process))
        except TimeoutError as error:
            raise ChildFailed(f"training took more than {self._time_limit_s:g} s", is_final=True) from error
        finally:
            self.pid = None
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
        if status != 0:
            raise ChildFailed(f"the training process ended with status {status}: {words}")

    async def _watched(self, process: asyncio.subprocess.Process) -> int:
        """Return the exit status; kill the process when it grows too large."""
        ended = asyncio.ensure_future(process.wait())
        try:
            while not (await asyncio.wait({ended}, timeout=LOOK_EVERY_S))[0]:
                if _resident_bytes(process.pid) > self._memory_bytes:
                    limit = self._memory_bytes >> 20
                    raise ChildFailed(f"training needed more than {limit} MiB of memory", is_final=True)
            return ended.result()
        finally:
            ended.cancel()

    def _environment(self, directory: Path) -> dict[str, str]:
        name, _, value = self._marker.partition("=")
        kept = {key: os.environ[key] for key in ("PATH", "LANG", "LD_LIBRARY_PATH") if key in os.environ}
        return {**kept, name: value, "HOME": str(directory), "TMPDIR": str(directory)}


def _prepare(directory: Path, order: Order, model: Path) -> None:
    for name in (REPLY, UPDATE):
        (directory / name).unlink(missing_ok=True)
    (directory / MODEL).write_bytes(model.read_bytes())
    (directory / INSTRUCTION).write_bytes(msgspec.json.encode(order))


def _result(directory: Path, order: Order) -> tuple[Reply, Path | None]:
    file = directory / REPLY
    try:
        if file.stat().st_size > REPLY_LIMIT_BYTES:
            raise ChildFailed("the training process left a reply that is too large", is_final=True)
        reply = msgspec.json.decode(file.read_bytes(), type=Reply)
    except (FileNotFoundError, msgspec.MsgspecError) as error:
        raise ChildFailed(f"the training process left no reply: {error}") from error
    if reply.instruction_id != order.instruction.id:
        raise ChildFailed("the training process answered another instruction")
    return reply, directory / UPDATE if reply.update else None


async def _last_words(process: asyncio.subprocess.Process) -> str:
    assert process.stderr is not None
    tail = b""
    while chunk := await process.stderr.read(4096):
        tail = (tail + chunk)[-_LAST_WORDS_BYTES:]
    lines = tail.decode("utf-8", "replace").strip().splitlines()
    return lines[-1][:300] if lines else "it said nothing"


def _resident_bytes(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * _PAGE_BYTES
    except (OSError, IndexError, ValueError):
        return 0  # it has just ended
