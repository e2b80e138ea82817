"""The executor in the agent: attempts, their limits, and the health of one device. Owns when a child is
started.

A child's death or silence ends the attempts on it as device_fault, opens the breaker, and a probe closes it
again. No executor shares anything with another: one bad device never touches its neighbours.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Coroutine
from pathlib import Path
from typing import Literal

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
        self._starting = asyncio.Lock()
        self._child: Child | None = None
        self._attempts: dict[str, _Attempt] = {}
        self._background: set[asyncio.Task[None]] = set()
        self._stopping = False

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
        """Run one attempt to its end. Never raises for what a task or a device does; cancellation kills
        it.
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
            if attempt.verdict:
                return Report(status=attempt.verdict, error=attempt.why())
            return Report(status="device_fault", error=f"{self._found.name}: {lost}")
        except ChannelError as error:
            return Report(status="invalid", error=f"the task is too large for its executor: {error}")
        finally:
            attempt.close()
            if self._attempts.get(job.task_id) is attempt:
                del self._attempts[job.task_id]

    def cancel(self, task_id: str) -> None:
        """Stop an attempt: its run() returns a report with status cancelled; nothing happens if it is not
        running.
        """
        attempt = self._attempts.get(task_id)
        if attempt is not None:
            attempt.end("cancelled", self._settings.kill_grace_s * 2)

    async def stop(self) -> None:
        """End the child and everything it runs, waiting until nothing is left."""
        self._stopping = True
        for task in self._background:
            task.cancel()
        async with self._starting:
            if self._child is not None:
                await self._child.end()
                self._child = None

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
        async with self._starting:
            if self._stopping:
                raise ChildLost("the executor was stopped")
            if self._child is not None and not self._child.lost.done():
                return self._child
            if self._breaker.is_open:
                raise ChildLost(self._breaker.reason)
            return await self._start()

    async def _start(self) -> Child:
        """Start a child.  Raises ChildLost, after the breaker was told."""
        try:
            child = await start_child(self._load, self._settings, self._marker)
        except ChildLost as lost:
            self._fault(str(lost))
            raise
        try:
            await child.ready(self._settings.start_timeout_s)
        except ChildLost as lost:
            self._fault(str(lost))
            raise
        except asyncio.CancelledError:
            child.kill("cancelled while it started")
            await asyncio.wait({child.lost})
            raise
        self._child = child
        child.lost.add_done_callback(lambda lost: self._lost(child, lost.result()))
        return child

    def _lost(self, child: Child, reason: str) -> None:
        if self._child is child:
            self._child = None
            if not self._stopping:
                self._fault(reason)

    def _fault(self, reason: str) -> None:
        was_open = self._breaker.is_open
        self._breaker.fault(self._clock.now(), reason, share=self._rng.random())
        wait_s = self._breaker.wait_s(self._clock.now())
        _log.warning(
            "%s (%s): %s; next probe in %.1f s", self._found.device_id, self._load.kind, reason, wait_s
        )
        if not was_open:
            self._in_background(self._recover())

    async def _recover(self) -> None:
        """Probe until a child starts again; every failure makes the next wait longer."""
        while self._breaker.is_open:
            await asyncio.sleep(self._breaker.wait_s(self._clock.now()))
            async with self._starting:
                if self._stopping:
                    return
                try:
                    await self._start()
                except ChildLost:
                    continue  # the breaker knows, and has set the next wait
                self._breaker.probed()
                _log.info("%s (%s): back in use", self._found.device_id, self._load.kind)

    def _in_background(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)


def _message(job: Job) -> Run:
    return Run(
        run=0,
        task_id=job.task_id,
        fence=job.fence,
        spec=job.spec,
        memory_bytes=job.memory_bytes,
        blobs={content: str(path) for content, path in job.blobs.items()},
    )


def _retrieve(future: asyncio.Future[Result]) -> None:
    """Take a lost child's error out of the future, so that nobody reports it as forgotten."""
    if not future.cancelled():
        future.exception()


def _paths(files: dict[str, str]) -> dict[str, Path]:
    return {name: Path(path) for name, path in files.items()}
