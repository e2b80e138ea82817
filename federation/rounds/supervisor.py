"""Keeps a run's worker process alive until the run is final. Owns the process, not what it says."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

_log = logging.getLogger(__name__)
#: Of the worker's last words, for the reason of a failed run.
_LAST_WORDS_BYTES = 2000


@dataclass(frozen=True, kw_only=True)
class WorkerCommand:
    """How to start a worker, with the training environment's interpreter."""

    python: Path
    module: str = "federation.run_worker"
    directory: Path | None = None  #: to start it in
    environment: dict[str, str] = field(default_factory=dict)
    nice: int = 5
    restarts: int = 10  #: without a new version in between; then the run fails
    first_delay_s: float = 0.2
    longest_delay_s: float = 30.0

    def words(self, socket: Path, run_id: str) -> Sequence[str]:
        """Return the command line.

        It names this process: the worker sees to it itself that it ends with its parent. Nothing of that may
        run between fork and exec, where threads of the parent are torn down with what only they may drop.
        """
        told = ("--socket", str(socket), "--run", run_id, "--parent", str(os.getpid()))
        return (str(self.python), "-m", self.module, *told)


class Supervisor:
    """One run's worker. progress: the run's newest version, or None once the run is final."""

    def __init__(
        self,
        command: WorkerCommand,
        socket: Path,
        run_id: str,
        *,
        progress: Callable[[], Awaitable[int | None]],
        give_up: Callable[[str], Awaitable[None]],
    ) -> None:
        """give_up: called with a reason when the worker dies again and again without a new version."""
        self._command = command
        self._socket = socket
        self._run_id = run_id
        self._progress = progress
        self._give_up = give_up
        self._process: asyncio.subprocess.Process | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def pid(self) -> int | None:
        """The worker's process id while it runs."""
        running = self._process is not None and self._process.returncode is None
        return self._process.pid if running and self._process else None

    @property
    def is_running(self) -> bool:
        """Whether the worker is being kept alive."""
        return self._task is not None and not self._task.done()

    def start(self) -> None:
        """Begin to keep the worker alive."""
        if not self.is_running:
            self._task = asyncio.create_task(self._keep_alive(), name=f"run {self._run_id}")

    async def stop(self) -> None:
        """Kill the worker: all it knows is in the ledger."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    async def wait(self) -> None:
        """Return when the run is final or was given up."""
        if self._task is not None:
            await asyncio.wait({self._task})

    async def _keep_alive(self) -> None:
        version = await self._progress()
        failures = 0
        while version is not None:
            last_words = await self._run_once()
            now = await self._progress()
            failures = 0 if now != version else failures + 1
            version = now
            if version is None:
                return
            if failures > self._command.restarts:
                await self._give_up(f"its worker ended {failures} times without a new version: {last_words}")
                return
            delay = min(self._command.longest_delay_s, self._command.first_delay_s * 2**failures)
            _log.warning(
                "run %s: the worker ended, next start in %.1f s: %s", self._run_id, delay, last_words
            )
            await asyncio.sleep(delay)

    async def _run_once(self) -> str:
        process = await asyncio.create_subprocess_exec(
            *self._command.words(self._socket, self._run_id),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
            cwd=self._command.directory,
            env={**os.environ, **self._command.environment},
        )
        self._process = process
        with contextlib.suppress(ProcessLookupError):
            os.setpriority(
                os.PRIO_PROCESS, process.pid, os.getpriority(os.PRIO_PROCESS, 0) + self._command.nice
            )
        assert process.stderr is not None
        tail = b""
        try:
            while chunk := await process.stderr.read(4096):
                tail = (tail + chunk)[-_LAST_WORDS_BYTES:]
            status = await process.wait()
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
        return _last_line(tail) or f"exit status {status}"


def _last_line(tail: bytes) -> str:
    lines = tail.decode("utf-8", "replace").strip().splitlines()
    return lines[-1][:300] if lines else ""
