"""What the agent asks of an executor: run one attempt in a child process and tell how it went."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import msgspec

from skerry.node import Device
from skerry.task import ExecutorSpec


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt.

    blobs: content hash → verified local file. Commands see SKERRY_TASK_ID and SKERRY_FENCE.
    """

    task_id: str
    fence: str
    spec: ExecutorSpec
    max_runtime_s: float
    memory_bytes: int
    blobs: Mapping[str, Path] = {}


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """How an attempt went.

    status: succeeded; failed (the task's fault, may be retried); invalid (the task can never run: wrong
    shape, no such command, broken model); timed_out; cancelled; device_fault (the child died or hung: not the
    task's fault).
    result: JSON values.  files: named large outputs written below the executor's output directory.
    runtime_s: all of it.  load_s: of that, what loading the model took; 0: it was loaded.
    loaded: content hashes of the models that are loaded now; None: nothing is known of them.
    """

    status: str
    result: Any = None
    error: str = ""
    runtime_s: float = 0.0
    load_s: float = 0.0
    loaded: tuple[str, ...] | None = None
    files: Mapping[str, Path] = {}


#: Ends that say nothing about the device: nobody can tell how it would have gone.
SAYS_NOTHING = frozenset({"cancelled", "invalid"})


class Executor(Protocol):
    """Runs attempts on one device, at most `device.slots` at once, in a child process."""

    @property
    def device(self) -> Device:
        """The device it runs on, with its present health in `usable` and `reason`."""
        ...

    async def run(self, job: Job) -> Report:
        """Run one attempt to its end.

        Never raises for what a task or a device does; cancellation kills it.
        """
        ...

    def cancel(self, task_id: str) -> None:
        """Stop an attempt: its run() reports cancelled. Nothing happens if it is not running."""
        ...

    async def stop(self) -> None:
        """End every child, waiting until none is left."""
        ...
