"""Faults of children: each stays with its device, and each has a way out."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from devices.executors.orphans import marked
from devices.executors.process import ProcessExecutor
from devices.models import locate_builtin_models, tone_of, tone_task_inputs

if TYPE_CHECKING:
    from conftest import Bench

#: Children that misbehave from the start; FD and PARENT are their last two arguments.
GARBAGE = "import os,sys,time; os.write(int(sys.argv[-2]), b'\\x00\\x00\\x00\\x05hello'); time.sleep(300)"
FLOOD = "import os,sys,time; os.write(int(sys.argv[-2]), b'\\xff'*64); time.sleep(300)"
ABORTS = "import os,sys; print('libedge: device gone', file=sys.stderr, flush=True); os.abort()"
EXITS = "import sys; sys.exit('no driver')"
SILENT = "import time; time.sleep(300)"


def program(code: str) -> tuple[str, ...]:
    return (sys.executable, "-c", code)


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (GARBAGE, "not a message of the protocol"),
        (FLOOD, "announced"),
        (ABORTS, "was killed by SIGABRT: libedge: device gone"),
        (EXITS, "ended with exit code 1: no driver"),
        (SILENT, "not ready within 0.5 s"),
    ],
    ids=["garbage", "flood", "aborts", "exits", "silent"],
)
def test_a_child_that_misbehaves_is_a_fault_with_its_reason(bench: Bench, code: str, reason: str) -> None:
    timeout_s = 0.5 if code == SILENT else 30

    async def scenario(executor: ProcessExecutor) -> None:
        report = await executor.run(bench.command("true"))

        assert report.status == "device_fault"
        assert reason in report.error
        assert not executor.device.usable
        assert reason in executor.device.reason

    bench.play(
        scenario, bench.executor("command", program=program(code), start_timeout_s=timeout_s, backoff_s=60)
    )


def test_a_device_that_is_out_of_use_refuses_at_once(bench: Bench) -> None:
    async def scenario(executor: ProcessExecutor) -> None:
        await executor.run(bench.command("true"))

        report = await executor.run(bench.command("true", number=2))

        assert report.status == "device_fault"
        assert "no driver" in report.error

    bench.play(scenario, bench.executor("command", program=program(EXITS), backoff_s=60))


def test_a_device_whose_fault_goes_away_comes_back_by_itself(bench: Bench) -> None:
    healthy = bench.data_dir / "healthy"
    code = (
        "import os,sys,runpy\n"
        f"if not os.path.exists({str(healthy)!r}): sys.exit('not yet')\n"
        "runpy.run_module('devices.executors.child', run_name='__main__')"
    )

    async def scenario(executor: ProcessExecutor) -> None:
        first = await executor.run(bench.command("true"))
        assert first.status == "device_fault"

        healthy.touch()
        await bench.until(lambda: executor.device.usable, "a probe succeeds")

        assert (await executor.run(bench.command("true", number=2))).status == "succeeded"

    bench.play(scenario, bench.executor("command", program=program(code), backoff_limit_s=0.1))


def test_a_child_whose_runtime_is_missing_says_so(bench: Bench) -> None:
    code = (
        "import sys,runpy; sys.modules['onnxruntime'] = None\n"
        "runpy.run_module('devices.executors.child', run_name='__main__')"
    )
    model = locate_builtin_models()["swift-f0"]

    async def scenario(executor: ProcessExecutor) -> None:
        report = await executor.run(bench.onnx(model, tone_task_inputs(220)))

        assert report.status == "device_fault"
        assert "onnxruntime" in report.error

    bench.play(scenario, bench.executor("onnx", program=program(code), backoff_s=60))


def test_one_failing_device_of_four_leaves_three_at_work(bench: Bench) -> None:
    model = locate_builtin_models()["swift-f0"]
    good = [bench.executor("onnx", board=board) for board in ("hailo-8l", "coral-usb", "coral-m2")]
    bad = bench.executor("onnx", board="rk3588-npu", program=program(ABORTS), backoff_limit_s=0.05)

    async def scenario(*executors: ProcessExecutor) -> None:
        jobs = [bench.onnx(model, tone_task_inputs(220.0), number=number) for number in range(1, 25)]

        reports = await asyncio.gather(*(executors[n % 4].run(job) for n, job in enumerate(jobs)))

        for number, report in enumerate(reports):
            if executors[number % 4] is bad:
                assert report.status == "device_fault"
            else:
                assert tone_of(report.result) == pytest.approx(220, abs=2)
        assert [executor.device.usable for executor in executors] == [True, True, True, False]

    bench.play(scenario, *good, bad)


def test_stop_while_a_child_still_starts_ends_it(bench: Bench) -> None:
    async def scenario(executor: ProcessExecutor) -> None:
        task = asyncio.create_task(executor.run(bench.command("true")))
        await asyncio.sleep(0)  # the start has begun

        await executor.stop()

        assert (await task).status == "device_fault"

    bench.play(scenario, bench.executor("command", program=program(SILENT)))


def test_a_cancelled_first_attempt_leaves_a_usable_child(bench: Bench) -> None:
    async def scenario(executor: ProcessExecutor) -> None:
        task = asyncio.create_task(executor.run(bench.command("sleep", "300")))
        await asyncio.sleep(0)  # the start has begun
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

        assert (await executor.run(bench.command("true", number=2))).status == "succeeded"

    bench.play(scenario, bench.executor("command"))


def test_a_loop_that_slept_itself_does_not_blame_the_child(bench: Bench) -> None:
    """The agent was suspended or starved: the child's heartbeats are all there, only unread."""
    import time

    async def scenario(executor: ProcessExecutor) -> None:
        task = asyncio.create_task(executor.run(bench.command("sleep", "3.5")))
        await bench.until(lambda: executor.child_pid is not None, "the child is ready")
        time.sleep(3)  # noqa: ASYNC251 — blocks the loop on purpose, for longer than the time-out

        assert (await task).status == "succeeded"

    bench.play(scenario, bench.executor("command", heartbeat_timeout_s=2.0))


def test_a_stopped_child_is_replaced(bench: Bench) -> None:
    async def scenario(executor: ProcessExecutor) -> None:
        assert (await executor.run(bench.command("true"))).status == "succeeded"
        first = executor.child_pid
        assert first is not None
        os.kill(first, signal.SIGSTOP)

        await bench.until(lambda: executor.child_pid not in (first, None), "another child runs")

        with pytest.raises(ProcessLookupError):
            os.kill(first, 0)
        assert (await executor.run(bench.command("true", number=2))).status == "succeeded"

    bench.play(scenario, bench.executor("command", heartbeat_timeout_s=2.0))


@pytest.mark.chaos
@pytest.mark.parametrize("kind", ["onnx", "command"])
def test_kills_at_random_moments_lose_no_attempt_and_leave_one_child(bench: Bench, kind: str) -> None:
    chance = random.Random(f"kills-{kind}")  # the moments differ from run to run all the same: processes do
    model = locate_builtin_models()["swift-f0"]
    faults = 0

    async def stubborn(executor: ProcessExecutor, number: int) -> None:
        nonlocal faults
        job = (
            bench.onnx(model, tone_task_inputs(220.0), number=number)
            if kind == "onnx"
            else bench.command("sleep", "0.01", number=number)
        )
        while (report := await executor.run(job)).status != "succeeded":
            assert report.status == "device_fault", report.error
            faults += 1
            await bench.until(lambda: executor.device.usable, "the device is back")

    async def scenario(executor: ProcessExecutor) -> None:
        work = asyncio.gather(*(stubborn(executor, number) for number in range(60)))
        kills = 0
        while not work.done() and kills < 6:
            await asyncio.sleep(chance.uniform(0, 0.1))  # a moment of the work, whichever it is
            if executor.child_pid is not None:
                with suppress(ProcessLookupError):
                    os.kill(executor.child_pid, chance.choice([signal.SIGKILL, signal.SIGABRT]))
                    kills += 1
        await work

        assert faults > 0
        assert marked(bench.marker) == (executor.child_pid,)

    bench.play(scenario, bench.executor(kind, backoff_limit_s=0.05))
