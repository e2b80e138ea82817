"""What every executor owes the agent, run over each of them with real child processes."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import os
import signal
import struct
import time
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from devices.discovery import build_executors, discover
from devices.executors.orphans import agent_marker, end_marked, marked
from devices.executors.process import ProcessExecutor
from devices.models import locate_builtin_models, tone_of, tone_task_inputs
from devices.port import Executor, Job, Report
from devices.settings import ChildSettings, DeviceSettings
from devices.testing import a_model
from skerry.task import CommandSpec, OnnxSpec, Tensor

#: Generous where the machine may be slow, because no test waits for these to pass.
CHILDREN = ChildSettings(heartbeat_s=0.1, heartbeat_timeout_s=30, kill_grace_s=1, backoff_s=0.02)
PATIENCE_S = 60.0
FOR_EVER = 1 << 60  # iterations of the spin model


class Kit:
    """An executor under test and jobs for it."""

    def __init__(self, kind: str, device_class: str, data_dir: Path) -> None:
        self.kind = kind
        self.emulated = device_class != "cpu"
        self.data_dir = data_dir
        self.witness = data_dir / "witness"
        self._device_class = device_class
        self._spin = data_dir / "spin.onnx"
        self._spin.write_bytes(a_model("spin"))

    def executor(self, **children: Any) -> ProcessExecutor:
        settings = DeviceSettings(
            cpu_slots=2,
            emulated=("hailo-8l",),
            witness=str(self.witness),
            children=msgspec.structs.replace(CHILDREN, **children),
        )
        inventory = discover(settings)
        device = next(d for d in inventory.devices if d.device_class == self._device_class)
        return build_executors(inventory, settings, data_dir=self.data_dir)[device.device_id, self.kind]

    def job(self, number: int = 1, **fields: Any) -> Job:
        """A job that succeeds at once."""
        if self.kind == "command":
            return _job(
                number, CommandSpec(argv=("sh", "-c", 'echo "$SKERRY_TASK_ID" | cut -c1-3')), **fields
            )
        model = locate_builtin_models()["swift-f0"]
        return _onnx_job(number, model, tone_task_inputs(220.0), **fields)

    def endless(self, number: int = 1, **fields: Any) -> Job:
        """A job that would run longer than anyone waits, and that stops when asked."""
        if self.kind == "command":
            return _job(number, CommandSpec(argv=("sleep", "300")), **fields)
        times = base64.b64encode(struct.pack("<q", FOR_EVER)).decode()
        return _onnx_job(number, self._spin, {"times": Tensor(dtype="int64", base64=times)}, **fields)

    def foreign(self) -> Job:
        """A job for the other kind of executor."""
        spec = (
            CommandSpec(argv=("true",))
            if self.kind == "onnx"
            else OnnxSpec(model="sha256:" + "0" * 64, inputs={})
        )
        return _job(1, spec)


def _job(number: int, spec: OnnxSpec | CommandSpec, **fields: Any) -> Job:
    values: dict[str, Any] = {"fence": "0.1", "max_runtime_s": 120.0, "memory_bytes": 512 << 20}
    return Job(task_id=f"{number:032x}", spec=spec, **(values | fields))


def _onnx_job(number: int, model: Path, inputs: dict[str, Tensor], **fields: Any) -> Job:
    content = f"sha256:{hashlib.sha256(model.read_bytes()).hexdigest()}"
    return _job(number, OnnxSpec(model=content, inputs=inputs), blobs={content: model}, **fields)


@pytest.fixture(
    params=[("onnx", "cpu"), ("onnx", "npu"), ("command", "cpu")],
    ids=["onnx-on-cpu", "onnx-on-emulated", "command-on-cpu"],
)
def kit(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Kit]:
    yield Kit(*request.param, tmp_path)

    left = end_marked(agent_marker(tmp_path))
    assert left == 0, f"{left} processes outlived their executor"


Scenario = Callable[[ProcessExecutor], Coroutine[Any, Any, None]]


def play(executor: ProcessExecutor, scenario: Scenario) -> None:
    """Run a scenario in an event loop and stop the executor whatever happens."""

    async def whole() -> None:
        try:
            await asyncio.wait_for(scenario(executor), 60)
        finally:
            await asyncio.wait_for(executor.stop(), 30)

    asyncio.run(whole())


async def until(condition: Callable[[], bool], what: str) -> None:
    """Poll a condition on real processes."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, f"never happened: {what}"
        await asyncio.sleep(0.01)  # nothing tells us; the condition looks at other processes


async def under_way(executor: ProcessExecutor, job: Job) -> asyncio.Task[Report]:
    """Start a job and wait until its child has it."""
    task = asyncio.create_task(executor.run(job))
    await until(lambda: executor.child_pid is not None, "the child is ready")
    await asyncio.sleep(0.1)  # lets the message reach the child; every test here holds if it has not
    return task


def test_an_executor_keeps_the_port(kit: Kit) -> None:
    executor: Executor = kit.executor()

    assert executor.device.usable
    assert kit.kind in executor.device.executors
    assert executor.device.emulated is kit.emulated


def test_an_attempt_succeeds_with_a_result_of_json_values(kit: Kit) -> None:
    async def scenario(executor: ProcessExecutor) -> None:
        report = await executor.run(kit.job())

        assert (report.status, report.error) == ("succeeded", "")
        assert report.runtime_s > 0
        assert msgspec.json.decode(msgspec.json.encode(report.result)) == report.result
        assert report.result.get("emulated", False) is kit.emulated
        if kit.kind == "command":
            assert report.result["stdout"] == "000\n"
        else:
            assert tone_of(report.result) == pytest.approx(220, abs=2)

    play(kit.executor(), scenario)


def test_more_attempts_than_slots_all_end_well(kit: Kit) -> None:
    async def scenario(executor: ProcessExecutor) -> None:
        jobs = [kit.job(number) for number in range(1, executor.device.slots + 4)]

        reports = await asyncio.gather(*(executor.run(job) for job in jobs))

        assert [report.status for report in reports] == ["succeeded"] * len(jobs)

    play(kit.executor(), scenario)


def test_an_attempt_that_runs_too_long_is_timed_out_and_the_device_stays_usable(kit: Kit) -> None:
    async def scenario(executor: ProcessExecutor) -> None:
        report = await executor.run(kit.endless(max_runtime_s=0.3))

        assert report.status == "timed_out"
        assert "0.3 s" in report.error
        assert executor.device.usable
        assert (await executor.run(kit.job(2))).status == "succeeded"

    play(kit.executor(), scenario)


def test_cancel_ends_a_running_attempt(kit: Kit) -> None:
    async def scenario(executor: ProcessExecutor) -> None:
        task = await under_way(executor, kit.endless())

        executor.cancel(kit.endless().task_id)
        report = await task

        assert report.status == "cancelled"
        assert executor.device.usable

    play(kit.executor(), scenario)


def test_cancelling_what_does_not_run_does_nothing(kit: Kit) -> None:
    kit.executor().cancel("0" * 32)


def test_cancelling_the_coroutine_kills_the_attempt(kit: Kit) -> None:
    async def scenario(executor: ProcessExecutor) -> None:
        task = await under_way(executor, kit.endless())

        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

        assert (await executor.run(kit.job(2))).status == "succeeded"
        assert "sleep" not in " ".join(_commands_below(executor))

    play(kit.executor(), scenario)


def _commands_below(executor: ProcessExecutor) -> list[str]:
    pid = executor.child_pid
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [Path(f"/proc/{child}/comm").read_text().strip() for child in children]


@pytest.mark.parametrize("how", [signal.SIGABRT, signal.SIGKILL, signal.SIGSEGV])
def test_the_death_of_the_child_is_a_fault_of_the_device_and_it_comes_back(
    kit: Kit, how: signal.Signals
) -> None:
    async def scenario(executor: ProcessExecutor) -> None:
        task = await under_way(executor, kit.endless())
        assert executor.child_pid is not None

        os.kill(executor.child_pid, how)
        report = await task

        assert report.status == "device_fault"
        assert how.name in report.error
        assert not executor.device.usable
        assert how.name in executor.device.reason
        await until(lambda: executor.device.usable, "the device is back")
        assert (await executor.run(kit.job(2))).status == "succeeded"

    play(kit.executor(), scenario)


def test_a_child_that_hangs_is_found_by_its_silence(kit: Kit) -> None:
    async def scenario(executor: ProcessExecutor) -> None:
        task = await under_way(executor, kit.endless())
        assert executor.child_pid is not None

        os.kill(executor.child_pid, signal.SIGSTOP)
        report = await task

        assert report.status == "device_fault"
        assert "no heartbeat" in report.error
        assert not executor.device.usable

    play(kit.executor(heartbeat_timeout_s=2.0), scenario)


def test_stop_ends_what_runs_and_leaves_no_process(kit: Kit) -> None:
    async def scenario(executor: ProcessExecutor) -> None:
        task = await under_way(executor, kit.endless())

        await executor.stop()

        assert (await task).status == "device_fault"
        assert marked(agent_marker(kit.data_dir)) == ()
        late = await executor.run(kit.job(2))
        assert late.status == "device_fault"
        assert "stopped" in late.error

    play(kit.executor(), scenario)


def test_a_task_for_another_executor_is_invalid(kit: Kit) -> None:
    async def scenario(executor: ProcessExecutor) -> None:
        report = await executor.run(kit.foreign())

        assert report.status == "invalid"

    play(kit.executor(), scenario)


def test_a_child_that_cannot_be_started_is_a_fault_with_its_reason(kit: Kit) -> None:
    async def scenario(executor: ProcessExecutor) -> None:
        report = await executor.run(kit.job())

        assert report.status == "device_fault"
        assert "/nonexistent/python" in report.error
        assert not executor.device.usable

    play(kit.executor(program=("/nonexistent/python",)), scenario)
