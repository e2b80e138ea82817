"""Executors on real child processes for the tests of this folder."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

from devices.discovery import build_executors, discover
from devices.executors.orphans import agent_marker, end_marked
from devices.executors.process import ProcessExecutor
from devices.port import Job
from devices.settings import ChildSettings, DeviceSettings
from skerry.task import CommandSpec, OnnxSpec, Tensor

PATIENCE_S = 20.0


class Bench:
    """Builds executors and jobs, and plays scenarios with them."""

    def __init__(self, data_dir: Path) -> None:
        self.data_dir = data_dir
        self.witness = data_dir / "witness"
        self.marker = agent_marker(data_dir)

    def executor(
        self,
        kind: str,
        *,
        board: str | None = None,
        witness: bool = True,
        user: str | None = None,
        **children: Any,
    ) -> ProcessExecutor:
        """An executor on the processor, or on an emulated board. children: fields of ChildSettings."""
        quick: dict[str, Any] = {
            "heartbeat_s": 0.1,
            "heartbeat_timeout_s": 30,
            "kill_grace_s": 1,
            "backoff_s": 0.02,
        }
        settings = DeviceSettings(
            cpu_slots=2,
            emulated=(board,) if board else (),
            witness=str(self.witness) if witness else None,
            command_user=user,
            children=ChildSettings(**(quick | children)),
        )
        device = discover(settings).devices[-1]
        return build_executors(discover(settings), settings, data_dir=self.data_dir)[device.device_id, kind]

    def command(self, *argv: str, number: int = 1, memory: int = 512 << 20, **fields: Any) -> Job:
        """A command job; fields are CommandSpec's."""
        return self.job(CommandSpec(argv=argv, **fields), number=number, memory_bytes=memory)

    def onnx(self, model: Path, inputs: dict[str, Tensor], **fields: Any) -> Job:
        """An inference of a model file, under its true hash."""
        content = f"sha256:{hashlib.sha256(model.read_bytes()).hexdigest()}"
        return self.job(
            OnnxSpec(model=content, inputs=inputs), blobs={content: model} | fields.pop("blobs", {}), **fields
        )

    def job(self, spec: OnnxSpec | CommandSpec, *, number: int = 1, **fields: Any) -> Job:
        """A job with generous limits."""
        limits: dict[str, Any] = {"fence": "0.1", "max_runtime_s": 120.0, "memory_bytes": 512 << 20}
        return Job(task_id=f"{number:032x}", spec=spec, **(limits | fields))

    def play(self, scenario: Callable[..., Coroutine[Any, Any, None]], *executors: ProcessExecutor) -> None:
        """Run a scenario with executors and stop them whatever happens."""

        async def whole() -> None:
            try:
                await asyncio.wait_for(scenario(*executors), 60)
            finally:
                await asyncio.gather(*(executor.stop() for executor in executors))

        asyncio.run(whole())

    async def until(self, condition: Callable[[], bool], what: str) -> None:
        """Poll a condition that nothing tells us about: it looks at other processes."""
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            assert time.monotonic() < deadline, f"never happened: {what}"
            await asyncio.sleep(0.01)


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    yield Bench(tmp_path)

    left = end_marked(agent_marker(tmp_path))
    assert left == 0, f"{left} processes outlived their executor"
