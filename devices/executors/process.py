"""The executor in the agent: attempts, their limits, and the health of one device.

Owns when a child is started.

A child's death or silence ends the attempts on it as device_fault, opens the breaker, and a probe closes it
again. No executor shares anything with another: one bad device never touches its neighbours.
"""

from __future__ import annotations

import asyncio
import logging
import random
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

import msgspec

from devices.executors.breaker import Breaker
from devices.executors.channel import ChannelError, Load, Result, Run
from devices.executors.child_process import Child, ChildLost, start_child
from devices.port import Job, Report
from devices.settings import ChildSettings
from skerry.clock import Clock
from skerry.node import Device
from skerry.task import CommandSpec

_log = logging.getLogger(__name__)

Verdict = Literal["cancelled", "timed_out"]


class _Attempt:
    """One attempt as far as it has come. verdict: why it is being ended from here, if it is."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.verdict: Verdict | None = None
        self.child: Child | None = None
        self.number = 0
        self.timers: list[asyncio.TimerHandle] = []

    def end(self, verdict: Verdict, grace_s: float) -> None:
        """Ask the child to stop the attempt; kill the child when it does not."""
        self.verdict = self.verdict or verdict
        if self.child is None:
            return
        self.child.cancel(self.number)
        reason = f"an attempt did not stop within {grace_s:g} s of being asked"
        self.timers.append(asyncio.get_running_loop().call_later(grace_s, self.child.kill, reason))

    def close(self) -> None:
        for timer in self.timers:
            timer.cancel()

    def report(self, result: Result) -> Report:
        """Tell a result; one that came although we ended the attempt says why it ended."""
        stopped = result.status == "cancelled" and self.verdict is not None
        return Report(
            status=self.verdict if stopped and self.verdict else result.status,
            result=result.result,
            error=self.why() if stopped else result.error,
            runtime_s=result.runtime_s,
            load_s=result.load_s,
            loaded=result.loaded,
            files=_paths(result.files),
        )

    def why(self) -> str:
        if self.verdict == "timed_out":
            return f"ran longer than max_runtime_s, {self.job.max_runtime_s:g} s"
        return "cancelled while it ran"


class ProcessExecutor:
    """Runs attempts of one kind on one device, in a child process."""

    def __init__(
        self,
        device: Device,
        load: Load,
        settings: ChildSettings,
        *,
        marker: str,
        clock: Clock,
        rng: random.Random | None = None,
    ) -> None:
        """Start no child yet. rng spreads the back-off."""
        self._found = device
        self._load = load
        self._settings = settings
        self._marker = marker
        self._clock = clock
        self._rng = rng or random.Random()
        self._breaker = Breaker(base_s=settings.backoff_s, limit_s=settings.backoff_limit_s)
        self._slots = asyncio.Semaphore(device.slots)
        self._child: Child | None = None
        self._last: Child | None = None
        self._start_up: asyncio.Task[Child] | None = None
        self._recovery: asyncio.Task[None] | None = None
        self._attempts: dict[str, _Attempt] = {}
        self._stopping = asyncio.Event()

    @property
    def device(self) -> Device:
        """The device, with its present health."""
        if not self._breaker.is_open:
            return self._found
        return msgspec.structs.replace(self._found, usable=False, reason=f"suspect: {self._breaker.reason}")

    @property
    def child_pid(self) -> int | None:
        """The child's process id, None while there is none; its memory is listed apart from the agent's."""
        return self._child.pid if self._child else None

    async def run(self, job: Job) -> Report:
        """Run one attempt to its end.

        Never raises for what a task or a device does; cancellation kills it.
        """
        if isinstance(job.spec, CommandSpec) != (self._load.kind == "command"):
            return Report(
                status="invalid", error=f"{self._load.kind} on {self._found.name} cannot run this task"
            )
        attempt = _Attempt(job)
        self._attempts[job.task_id] = attempt
        try:
            async with self._slots:
                return await self._run(attempt)
        except ChildLost as lost:
            loaded = () if self._load.kind == "onnx" else None  # what it had loaded went with it
            if attempt.verdict:
                return Report(status=attempt.verdict, error=attempt.why(), loaded=loaded)
            return Report(status="device_fault", error=f"{self._found.name}: {lost}", loaded=loaded)
        except ChannelError as error:
            return Report(status="invalid", error=f"the task is too large for its executor: {error}")
        finally:
            attempt.close()
            if self._attempts.get(job.task_id) is attempt:
                del self._attempts[job.task_id]

    def cancel(self, task_id: str) -> None:
        """Stop an attempt: its run() reports cancelled. Nothing happens if it is not running."""
        attempt = self._attempts.get(task_id)
        if attempt is not None:
            attempt.end("cancelled", self._settings.kill_grace_s * 2)

    async def stop(self) -> None:
        """End the child and everything it runs, waiting until nothing is left."""
        self._stopping.set()
        if self._start_up is not None:
            await asyncio.wait({self._start_up})
        if self._child is not None:
            await self._child.end()
        if self._recovery is not None:
            await self._recovery

    async def _run(self, attempt: _Attempt) -> Report:
        child = await self._ready_child()
        if attempt.verdict:
            return Report(status=attempt.verdict, error="cancelled before it started")
        job, loop = attempt.job, asyncio.get_running_loop()
        attempt.number, future = child.run(_message(job))
        attempt.child = child
        grace_s = self._settings.kill_grace_s * 2
        # The loop's clock stands still while the machine is suspended, and so does the attempt.
        attempt.timers.append(loop.call_later(job.max_runtime_s, attempt.end, "timed_out", grace_s))
        try:
            result = await asyncio.shield(future)
        except asyncio.CancelledError:
            attempt.end("cancelled", grace_s)
            await asyncio.wait({future})
            _retrieve(future)
            raise
        self._breaker.succeeded()
        return attempt.report(result)

    async def _ready_child(self) -> Child:
        """Return the running child, or a new one.  Raises ChildLost while the breaker is open."""
        if self._breaker.is_open:
            raise ChildLost(self._breaker.reason)
        return await self._launch()

    async def _launch(self) -> Child:
        """Return the running child, or a new one.

        One start at a time; nobody's cancellation ends it half-way.
        """
        if self._stopping.is_set():
            raise ChildLost("the executor was stopped")
        if self._child is not None:
            return self._child
        if self._start_up is None or self._start_up.done():
            self._start_up = asyncio.create_task(self._start())
            self._start_up.add_done_callback(_retrieve)
        return await asyncio.shield(self._start_up)

    async def _start(self) -> Child:
        try:
            if self._last is not None and self._last.is_lingering:
                raise ChildLost("the child before this one hangs inside the kernel and cannot be killed")
            child = self._last = await start_child(self._load, self._settings, self._marker)
            await self._ready(child)
        except ChildLost as lost:
            self._fault(str(lost))
            raise
        if child.lost.done():
            self._fault(child.lost.result())
            raise ChildLost(child.lost.result())
        self._child = child
        child.on_lost = self._lost
        return child

    async def _ready(self, child: Child) -> None:
        """Wait until the child is ready; give up at once when the executor is stopped meanwhile."""
        ready = asyncio.create_task(child.ready(self._settings.start_timeout_s))
        stopping = asyncio.create_task(self._stopping.wait())
        await asyncio.wait({ready, stopping}, return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if not ready.done():
            child.kill("the executor was stopped")
        await ready

    def _lost(self, reason: str) -> None:
        self._child = None
        self._fault(reason)

    def _fault(self, reason: str) -> None:
        if self._stopping.is_set():
            return
        self._breaker.fault(self._clock.now(), reason, share=self._rng.random())
        wait_s = self._breaker.wait_s(self._clock.now())
        who = f"{self._found.device_id} ({self._load.kind})"
        _log.warning("%s: %s; next probe in %.1f s", who, reason, wait_s)
        if self._recovery is None or self._recovery.done():
            self._recovery = asyncio.create_task(self._recover())

    async def _recover(self) -> None:
        """Probe until a child starts again; every failure makes the next wait longer."""
        while self._breaker.is_open and not self._stopping.is_set():
            with suppress(TimeoutError):
                wait_s = self._breaker.wait_s(self._clock.now())
                await asyncio.wait_for(self._stopping.wait(), wait_s)
                return
            with suppress(ChildLost):  # the breaker knows, and has set the next wait
                await self._launch()
                self._breaker.probed()
                _log.info("%s (%s): back in use", self._found.device_id, self._load.kind)


def _message(job: Job) -> Run:
    return Run(
        run=0,
        task_id=job.task_id,
        fence=job.fence,
        spec=job.spec,
        memory_bytes=job.memory_bytes,
        blobs={content: str(path) for content, path in job.blobs.items()},
    )


def _retrieve(future: asyncio.Future[Any]) -> None:
    """Take a lost child's error out of the future, so that nobody reports it as forgotten."""
    if not future.cancelled():
        future.exception()


def _paths(files: dict[str, str]) -> dict[str, Path]:
    return {name: Path(path) for name, path in files.items()}
