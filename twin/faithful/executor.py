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
    result_bytes: int = 0  #: of a success


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
        self._runs: dict[str, asyncio.Future[bool]] = {}  #: task → whether its attempt is cut short

    @property
    def device(self) -> Device:
        """See Executor."""
        return self._device

    async def run(self, job: Job) -> Report:
        """See Executor."""
        behaviour = self._behave(job)
        self._effect(job, "begins")
        takes_s = min(behaviour.takes_s, job.max_runtime_s)
        loop = asyncio.get_running_loop()
        over: asyncio.Future[bool] = loop.create_future()
        if not behaviour.is_deaf:
            self._runs[job.task_id] = over
        end = loop.call_later(takes_s, _set, over, False)
        try:
            if await over:
                return Report(status="cancelled", error="cancelled")
        finally:
            end.cancel()
            self._runs.pop(job.task_id, None)
        if takes_s < behaviour.takes_s:
            return Report(status="timed_out", error=f"it ran for {takes_s:g} s", runtime_s=takes_s)
        if behaviour.status == "succeeded":
            self._effect(job, "succeeded")
        return Report(
            status=behaviour.status,
            error="" if behaviour.status == "succeeded" else "emulated",
            runtime_s=takes_s,
            result="x" * behaviour.result_bytes if behaviour.status == "succeeded" else None,
        )

    def cancel(self, task_id: str) -> None:
        """See Executor."""
        if task_id in self._runs:
            _set(self._runs[task_id], True)

    async def stop(self) -> None:
        """See Executor."""
        for over in self._runs.values():
            _set(over, True)


def _set(over: asyncio.Future[bool], is_cut_short: bool) -> None:
    if not over.done():
        over.set_result(is_cut_short)
