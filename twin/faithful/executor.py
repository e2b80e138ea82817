"""An emulated executor: an attempt takes the virtual time its kind takes, and the witness sees its effect.

The border to accelerators and children, which cannot exist on a virtual clock; labelled `emulated`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec

from devices.port import Job, Report
from skerry.node import Device


class Behaviour(msgspec.Struct, frozen=True, kw_only=True):
    """What one attempt does.  status: as in Report.  is_deaf: it does not end when asked to."""

    takes_s: float
    status: str = "succeeded"
    is_deaf: bool = False


class EmulatedExecutor:
    """Runs attempts as timers. An Executor."""

    def __init__(
        self,
        device: Device,
        behave: Callable[[Job], Behaviour],
        effect: Callable[[Job, str], None],
    ) -> None:
        """behave: decides an attempt's course.  effect: told when one begins and when it took effect."""
        self._device = device
        self._behave = behave
        self._effect = effect
        self._cancels: dict[str, asyncio.Event] = {}

    @property
    def device(self) -> Device:
        """See Executor."""
        return self._device

    async def run(self, job: Job) -> Report:
        """See Executor."""
        behaviour = self._behave(job)
        self._effect(job, "begins")
        cancelled = self._cancels[job.task_id] = asyncio.Event()
        takes_s = min(behaviour.takes_s, job.max_runtime_s)
        try:
            if await self._is_cut_short(cancelled, takes_s, is_deaf=behaviour.is_deaf):
                return Report(status="cancelled", error="cancelled")
        finally:
            self._cancels.pop(job.task_id, None)
        if takes_s < behaviour.takes_s:
            return Report(status="timed_out", error=f"it ran for {takes_s:g} s", runtime_s=takes_s)
        if behaviour.status == "succeeded":
            self._effect(job, "succeeded")
        return Report(
            status=behaviour.status,
            error="" if behaviour.status == "succeeded" else "emulated",
            runtime_s=takes_s,
        )

    async def _is_cut_short(self, cancelled: asyncio.Event, takes_s: float, *, is_deaf: bool) -> bool:
        if is_deaf:
            await asyncio.sleep(takes_s)
            return False
        try:
            await asyncio.wait_for(cancelled.wait(), takes_s)
        except TimeoutError:
            return False
        return True

    def cancel(self, task_id: str) -> None:
        """See Executor."""
        if task_id in self._cancels:
            self._cancels[task_id].set()

    async def stop(self) -> None:
        """See Executor."""
        for cancelled in self._cancels.values():
            cancelled.set()
