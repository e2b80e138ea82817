"""What a node records for local training: bounded, over restarts, in the form that a trainer reads."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from edge_agent.training_record import BOOT_GAP_S, Recorder, Seen, experience_of
from federation.experience import EXPERIENCE_NAME, read_experience
from policy.profile import Measured
from skerry.errors import FederationError
from skerry.fence import Fence
from skerry.ids import TaskId
from skerry.messages import Outcome
from skerry.node import Device
from skerry.testing import ManualClock, a_task
from task_queue.operations import Changed, Enqueue, Enqueued, Fail, Finish, Refused
from task_queue.task import State

CPU = Device(
    device_id="cpu-0", device_class="cpu", name="processor", executors=("command", "onnx"), power_w=10.0
)
NPU = Device(device_id="npu-0", device_class="npu", name="board", executors=("onnx",), speed=4.0, power_w=2.0)


def arrive(recorder: Recorder, n: int, **fields: Any) -> TaskId:
    task_id = TaskId(f"{n:032x}")
    operation = Enqueue(task_id=task_id, task=a_task(**fields))
    recorder.seen([operation], [Enqueued(task_id=task_id)])
    return task_id


def finish(recorder: Recorder, task_id: TaskId, *, runtime_s: float = 0.5, device: str = "cpu-0") -> None:
    outcome = Outcome(status="succeeded", device=device, runtime_s=runtime_s)
    operation = Finish(task_id=task_id, fence=Fence(), outcome=outcome)
    recorder.seen([operation], [Changed(task_id=task_id, state=State.DONE)])


def exported(recorder: Recorder, directory: Path, *devices: Device) -> Any:
    asyncio.run(recorder.export(directory, devices or (CPU,), ()))
    return read_experience(directory)


def test_a_task_is_recorded_with_its_arrival_and_how_it_ran(tmp_path: Path) -> None:
    clock = ManualClock()
    recorder = Recorder(tmp_path / "experience.db", clock)
    first = arrive(recorder, 1, kind="pitch", priority=7, deadline_s=3.0)
    clock.advance(2.5)
    second = arrive(recorder, 2, kind="pitch")
    finish(recorder, first, runtime_s=0.3)
    finish(recorder, second, runtime_s=0.1)

    found = exported(recorder, tmp_path)

    assert [(t.kind, t.at_s, t.priority, t.deadline_s) for t in found.tasks] == [
        ("pitch", 0.0, 7, 3.0),
        ("pitch", 2.5, 4, None),
    ]
    assert [t.ratio for t in found.tasks] == pytest.approx([1.5, 0.5])
    assert found.devices[0].runs["pitch"].runtime_s == pytest.approx(0.2)
    assert found.devices[0].runs["pitch"].energy_j == pytest.approx(2.0)


def test_the_ring_keeps_the_newest(tmp_path: Path) -> None:
    clock = ManualClock()
    recorder = Recorder(tmp_path / "experience.db", clock, ring=5)
    for n in range(12):
        finish(recorder, arrive(recorder, n, kind=f"k{n}"))
        clock.advance(1.0)
        if n % 3 == 0:
            asyncio.run(recorder.flush())

    assert [task.kind for task in exported(recorder, tmp_path).tasks] == [f"k{n}" for n in range(7, 12)]


def test_the_record_goes_on_after_a_restart_and_after_a_reboot(tmp_path: Path) -> None:
    clock = ManualClock()

    async def life(n: int) -> None:
        recorder = Recorder(tmp_path / "experience.db", clock)
        finish(recorder, arrive(recorder, n))
        await recorder.close()

    asyncio.run(life(1))
    clock.advance(60.0)
    asyncio.run(life(2))
    clock.reboot("boot-2", off_s=1e6)
    asyncio.run(life(3))

    found = exported(Recorder(tmp_path / "experience.db", clock), tmp_path)
    assert [task.at_s for task in found.tasks] == [0.0, 60.0, 60.0 + BOOT_GAP_S]


def test_a_damaged_record_is_begun_anew(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "experience.db"
    file.write_bytes(b"not a database" * 1000)

    recorder = Recorder(file, ManualClock())
    finish(recorder, arrive(recorder, 1))

    assert len(exported(recorder, tmp_path).tasks) == 1
    assert "recorded anew" in caplog.text


def test_a_place_that_cannot_be_written_costs_the_record_and_nothing_else(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    recorder = Recorder(tmp_path / "absent" / "experience.db", ManualClock())
    finish(recorder, arrive(recorder, 1))

    asyncio.run(recorder.close())

    assert "nothing is recorded" in caplog.text


def test_what_did_not_end_here_is_not_recorded(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "experience.db", ManualClock())
    task_id = arrive(recorder, 1)
    outcome = Outcome(status="failed", error="try again", device="cpu-0")
    again = Fail(task_id=task_id, fence=Fence(), outcome=outcome)
    recorder.seen([again], [Changed(task_id=task_id, state=State.READY)])
    recorder.seen([again], [Refused(reason="fenced", message="stale")])
    known = Enqueue(task_id=TaskId(f"{2:032x}"), task=a_task())
    recorder.seen([known], [Enqueued(task_id=task_id, is_new=False)])
    asyncio.run(recorder.export(tmp_path, (CPU,), ()))

    assert not (tmp_path / EXPERIENCE_NAME).exists()
    with pytest.raises(FederationError, match="no record of arrivals"):
        read_experience(tmp_path)


def test_a_device_that_never_ran_a_kind_is_estimated_from_the_speeds() -> None:
    seen = [Seen(kind="pitch", executor="onnx", at_s=0.0, priority=4, deadline_s=None, device="cpu-0",
                 runtime_s=0.4, status="succeeded")]  # fmt: skip

    found = experience_of(seen, (CPU, NPU), ())

    assert found is not None
    assert [device.runs["pitch"].runtime_s for device in found.devices] == pytest.approx([0.4, 0.1])


def test_a_command_is_not_estimated_where_commands_do_not_run() -> None:
    seen = [Seen(kind="count", executor="command", at_s=0.0, priority=4, deadline_s=None, device="cpu-0",
                 runtime_s=0.4, status="succeeded")]  # fmt: skip

    found = experience_of(seen, (CPU, NPU), (Measured(kind="other", device="npu-0", mean_s=1.0, count=1),))

    assert found is not None
    assert [list(device.runs) for device in found.devices] == [["count"], []]
