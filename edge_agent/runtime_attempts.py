"""The shell's part of running attempts: job to executor, result to content store, health of the devices."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from devices.port import Executor, Job, Report
from edge_agent.core.actions import RunAttempt, StopAttempt
from edge_agent.core.events import AttemptEnded, Event
from policy.filters import executor_of
from skerry.blobs import BlobStore
from skerry.errors import BlobError
from skerry.node import Device
from skerry.task import INLINE_LIMIT_BYTES, blobs_of

log = logging.getLogger(__name__)

Executors = Mapping[tuple[str, str], Executor]
MakeRoom = Callable[[int], Awaitable[None]]


class Attempts:
    """Runs attempts on executors, each in its own task of the event loop."""

    def __init__(
        self, executors: Executors, blobs: BlobStore, post: Callable[[Event], None], make_room: MakeRoom
    ) -> None:
        """post: where ends are reported.  make_room: called before a large result is kept."""
        self._executors = executors
        self._blobs = blobs
        self._post = post
        self._make_room = make_room
        self._running: dict[str, tuple[asyncio.Task[None], Executor]] = {}

    def run(self, action: RunAttempt) -> None:
        """Begin an attempt; its end is posted as AttemptEnded, whatever happens."""
        executor = self._executors.get((action.device_id, executor_of(action.task)))
        if executor is None:
            error = f"{action.device_id} has no executor {executor_of(action.task)}"
            self._end(action, Report(status="invalid", error=error), ())
            return
        task = asyncio.create_task(self._run(action, executor))
        self._running[action.task_id] = (task, executor)

    def stop(self, action: StopAttempt) -> None:
        """Ask an attempt to end; by force: end the executor's run, which kills its child."""
        task, executor = self._running.get(action.task_id, (None, None))
        if task is None or executor is None:
            return
        if action.by_force:
            task.cancel()
        else:
            executor.cancel(action.task_id)

    async def close(self) -> None:
        """End every executor's children, waiting until none is left."""
        ends = await asyncio.gather(
            *(executor.stop() for executor in self._executors.values()), return_exceptions=True
        )
        for error in ends:
            if isinstance(error, BaseException):
                log.error("an executor did not end in order", exc_info=error)
        for task, _executor in list(self._running.values()):
            task.cancel()
        await asyncio.gather(*(task for task, _ in self._running.values()), return_exceptions=True)

    def suspects(self) -> dict[tuple[str, str], str]:
        """Return the (device, executor) pairs that are out of use now, with the reason."""
        found = {}
        for key, executor in self._executors.items():
            device = executor.device
            if not device.usable:
                found[key] = device.reason
        return found

    async def _run(self, action: RunAttempt, executor: Executor) -> None:
        report = Report(status="cancelled", error="ended by force")
        blobs: tuple[str, ...] = ()
        try:
            job = await self._job(action)
            report, blobs = await self._keep(await executor.run(job))
        except BlobError as error:
            report = Report(status="failed", error=f"its content cannot be used: {error}")
        except asyncio.CancelledError:
            log.warning("attempt %s of task %s was ended by force", action.fence, action.task_id)
        except Exception as error:
            log.error("the executor on %s broke", action.device_id, exc_info=error)
            report = Report(status="device_fault", error=f"the executor on {action.device_id} broke: {error}")
        finally:
            del self._running[action.task_id]
            self._end(action, report, blobs)

    async def _job(self, action: RunAttempt) -> Job:
        """Return what the executor is to do; only where content lies is worth a thread to look."""
        hashes = blobs_of(action.task)
        return Job(
            task_id=action.task_id,
            fence=str(action.fence),
            spec=action.task.spec,
            max_runtime_s=action.task.max_runtime_s,
            memory_bytes=action.task.resources.memory_bytes,
            blobs=await asyncio.to_thread(self._paths, hashes) if hashes else {},
        )

    def _paths(self, hashes: Iterable[str]) -> dict[str, Path]:
        return {name: self._blobs.path(name) for name in hashes}

    def _end(self, action: RunAttempt, report: Report, blobs: tuple[str, ...]) -> None:
        self._post(AttemptEnded(task_id=action.task_id, fence=action.fence, report=report, blobs=blobs))

    async def _keep(self, report: Report) -> tuple[Report, tuple[str, ...]]:
        """Put what is too large to travel inline into the content store; the result names it by hash."""
        if report.status != "succeeded":
            return report, ()
        try:
            if report.files:
                return await self._keep_files(report)
            return await self._keep_result(report)
        except BlobError as error:
            return msgspec.structs.replace(
                report, status="failed", result=None, files={}, error=f"its result could not be kept: {error}"
            ), ()

    async def _keep_files(self, report: Report) -> tuple[Report, tuple[str, ...]]:
        await self._make_room(sum(path.stat().st_size for path in report.files.values()))
        kept: dict[str, str] = {}
        for name, path in report.files.items():
            kept[name] = await asyncio.to_thread(self._blobs.put_file, path)
        await asyncio.to_thread(_remove, list(report.files.values()))
        shown: dict[str, Any] = report.result if isinstance(report.result, dict) else {"value": report.result}
        result = {**shown, "blobs": kept}
        return msgspec.structs.replace(report, result=result, files={}), tuple(sorted(set(kept.values())))

    async def _keep_result(self, report: Report) -> tuple[Report, tuple[str, ...]]:
        data = msgspec.json.encode(report.result)
        if len(data) <= INLINE_LIMIT_BYTES:
            return report, ()
        await self._make_room(len(data))
        name = await asyncio.to_thread(self._blobs.put_bytes, data)
        result = {"blob": name, "size_bytes": len(data), "media_type": "application/json"}
        return msgspec.structs.replace(report, result=result), (name,)


def present_devices(found: tuple[Device, ...], suspects: Mapping[tuple[str, str], str]) -> tuple[Device, ...]:
    """Return the devices as they are now: one all of whose executors are out of use is out of use itself."""
    return tuple(_present(device, suspects) for device in found)


def _present(device: Device, suspects: Mapping[tuple[str, str], str]) -> Device:
    reasons = [suspects.get((device.device_id, executor)) for executor in device.executors]
    if not device.usable or not reasons or not all(reasons):
        return device
    return msgspec.structs.replace(device, usable=False, reason="; ".join(filter(None, reasons)))


def _remove(paths: list[Path]) -> None:
    for path in paths:
        path.unlink(missing_ok=True)
    for folder in {path.parent for path in paths}:
        if not any(folder.iterdir()):
            folder.rmdir()
