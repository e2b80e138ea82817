"""What a device did lately: counted once a task, judged by what is known, forgotten with the executor."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from devices.port import Report
from edge_agent.core.events import DevicesChanged, RulesChanged
from edge_agent.testing import CPU, NPU, Behaviour, World
from policy.device_plan import model_of
from policy.history import LEARN, RECENT
from policy.port import DeviceView
from policy.testing import a_model_task
from skerry.task import TaskSpec
from skerry.testing import a_task

MakeWorld = Callable[..., World]
MODEL = model_of(a_model_task())


def view_of(world: World, device_id: str) -> DeviceView:
    devices = world.core.state.view(world.clock.uptime_s).devices
    (found,) = (view for view in devices if view.device.device_id == device_id)
    return found


def reporting(**fields: object) -> Callable[..., Behaviour]:
    report = Report(**{"status": "succeeded", "runtime_s": 1.0, **fields})  # type: ignore[arg-type]
    return lambda *_: Behaviour(report=report)


def a_measured_world(make_world: MakeWorld, task: TaskSpec, **fields: object) -> World:
    world = make_world(**fields)
    world.profile.observe(task.kind, CPU, 0.5)
    return world


def test_a_task_that_is_decided_again_counts_once(make_world: MakeWorld) -> None:
    world = make_world(behave=lambda *_: Behaviour(takes_s=100.0))
    world.submit(*(a_task() for _ in range(4)))
    world.settle()
    expected = 1.0 - (1.0 - RECENT) ** 4

    assert abs(view_of(world, "cpu-0").recent_share - expected) < 1e-12
    world.post(RulesChanged())
    world.settle()
    assert abs(view_of(world, "cpu-0").recent_share - expected) < 1e-12


def test_a_run_that_was_only_estimated_says_nothing_of_expectations(make_world: MakeWorld) -> None:
    world = make_world(behave=reporting())
    world.submit(a_task())
    world.run_for(2.0)

    assert view_of(world, "cpu-0").prediction == 1.0


def test_loading_is_no_part_of_what_was_expected_wrongly(make_world: MakeWorld) -> None:
    world = a_measured_world(make_world, a_task(), behave=reporting(load_s=0.25))
    world.submit(a_task())
    world.run_for(2.0)

    assert view_of(world, "cpu-0").prediction == 1.0 + LEARN * (0.75 / 0.5 - 1.0)


def test_what_ends_after_its_deadline_has_missed_it_even_when_it_failed(make_world: MakeWorld) -> None:
    world = make_world(behave=reporting(status="failed", error="no"))
    world.submit(a_task(deadline_s=0.5))
    world.run_for(1.05)

    assert view_of(world, "cpu-0").recent_misses == RECENT
    assert view_of(world, "cpu-0").prediction == 1.0


def test_a_cancelled_run_says_nothing(make_world: MakeWorld) -> None:
    world = a_measured_world(make_world, a_task(), behave=reporting(status="cancelled"))
    world.submit(a_task(deadline_s=0.5))
    world.run_for(1.05)

    assert (view_of(world, "cpu-0").recent_misses, view_of(world, "cpu-0").prediction) == (0.0, 1.0)


def test_a_model_is_loaded_from_its_first_run_on_until_the_executor_says_otherwise(
    make_world: MakeWorld,
) -> None:
    reports = [
        Report(status="succeeded", load_s=0.3, runtime_s=1.0, loaded=(MODEL,)),
        Report(status="device_fault", error="it died", loaded=()),
    ]
    world = make_world(devices=(NPU,), behave=lambda *_: Behaviour(report=reports.pop(0)))
    world.profile.observe_load(MODEL, NPU, 0.3)
    world.content = {MODEL: ""}

    world.submit(a_model_task())
    world.run_for(0.5)
    running = view_of(world, "npu-0")
    assert running.resident == (MODEL,)
    assert running.remaining_s is not None
    (entry,) = world.core.state.entries.values()
    assert entry.expected_s == entry.runtime_s + 0.3
    world.run_for(1.0)
    assert view_of(world, "npu-0").resident == (MODEL,)

    world.submit(a_model_task())
    world.run_for(0.5)
    (entry,) = world.core.state.entries.values()
    assert entry.expected_s == entry.runtime_s
    world.run_for(0.6)
    assert view_of(world, "npu-0").resident == ()


def test_a_device_out_of_use_holds_no_model_any_more(make_world: MakeWorld) -> None:
    world = make_world(devices=(NPU,), behave=reporting(loaded=(MODEL,)))
    world.content = {MODEL: ""}
    world.submit(a_model_task())
    world.run_for(2.0)
    assert view_of(world, "npu-0").resident == (MODEL,)

    world.post(DevicesChanged(devices=(msgspec.structs.replace(NPU, usable=False, reason="gone"),)))

    assert view_of(world, "npu-0").resident == ()
