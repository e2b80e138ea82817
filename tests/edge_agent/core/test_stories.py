"""The life of tasks through the core: run, fail, wait, leave, be cancelled, be placed and revoked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from devices.port import Report
from edge_agent.core.actions import Commit
from edge_agent.core.entry import Phase
from edge_agent.core.events import DevicesChanged, LinkChanged, StopRequested
from edge_agent.core.limits import Limits
from edge_agent.testing import CPU, FACTS, NPU, Behaviour, World
from skerry.fence import Fence
from skerry.messages import Outcome
from skerry.task import Constraints, OnnxSpec, Resources, TaskSpec, Tensor
from skerry.testing import a_task
from task_queue.operations import Cancel, Refused, Return, Start
from task_queue.task import State

MakeWorld = Callable[..., World]
MODEL = "sha256:" + "ab" * 32
ENROLLED = msgspec.structs.replace(FACTS, is_enrolled=True)
BROKEN_NPU = msgspec.structs.replace(NPU, usable=False, reason="it was unplugged")


def small(**fields: Any) -> Resources:
    return Resources(**{"cpu_millicores": 100, "memory_bytes": 1 << 20, **fields})


def failing(status: str, error: str = "no luck") -> Behaviour:
    return Behaviour(report=Report(status=status, error=error))


def onnx_task(**fields: Any) -> TaskSpec:
    spec = OnnxSpec(model=MODEL, inputs={"x": Tensor(dtype="float32", base64="AAAA", shape=(1,))})
    return a_task(spec=spec, kind="detect/x", **fields)


def test_a_task_runs_and_its_result_is_committed_with_the_decision_that_led_to_it(
    make_world: MakeWorld,
) -> None:
    world = make_world()

    (task_id,) = world.submit(a_task())
    world.run_for(2.0)

    record = world.get(task_id)
    assert record.state is State.DONE
    assert record.outcome is not None
    assert (record.outcome.result, record.outcome.device) == ("ok", "cpu-0")
    assert record.attempts[0].decision is not None
    assert record.attempts[0].decision.device == "cpu-0"
    assert world.effects == [(task_id, Fence((), 1))]


def test_what_has_left_wakes_nobody_up(make_world: MakeWorld) -> None:
    """Each attempt sets a timer for its time-out: an hour later there is nothing to look at."""
    world = make_world()

    world.submit(*[a_task() for _ in range(5)])
    world.run_for(20.0)

    assert not world.core.state.timers


def test_three_hundred_tasks_end_exactly_once_within_slots_and_window(make_world: MakeWorld) -> None:
    world = make_world(limits=Limits(window=32, claim_batch=8))

    ids = world.submit(*(a_task(resources=small()) for _ in range(300)))
    world.run_for(160.0)

    assert {world.get(i).state for i in ids} == {State.DONE}
    assert sorted(task_id for task_id, _ in world.effects) == sorted(ids)


def test_the_start_is_on_disk_before_the_attempt_runs(make_world: MakeWorld) -> None:
    world = make_world()
    (task_id,) = world.submit(a_task())

    while not world.attempts:
        assert world.step()

    assert world.get(task_id).state is State.RUNNING


def test_a_failed_attempt_is_tried_again_after_a_random_wait_until_its_tries_are_used_up(
    make_world: MakeWorld,
) -> None:
    world = make_world(behave=lambda task, fence, device: failing("failed"))

    (task_id,) = world.submit(a_task(retries=2))
    world.run_for(60.0)

    record = world.get(task_id)
    assert record.state is State.DEAD
    assert [attempt.ended for attempt in record.attempts] == ["failed"] * 3
    assert record.outcome is not None
    assert record.outcome.error == "no luck"


def test_a_task_that_can_never_run_is_not_tried_again(make_world: MakeWorld) -> None:
    world = make_world(behave=lambda task, fence, device: failing("invalid", "there is no command xyz"))

    (task_id,) = world.submit(a_task(retries=5))
    world.run_for(5.0)

    record = world.get(task_id)
    assert (record.state, record.attempt) == (State.DEAD, 1)


def test_an_at_most_once_task_that_fails_is_not_run_again(make_world: MakeWorld) -> None:
    world = make_world(behave=lambda task, fence, device: failing("failed"))

    (task_id,) = world.submit(a_task(retries=5, effect="at_most_once"))
    world.run_for(30.0)

    assert (world.get(task_id).state, world.get(task_id).attempt) == (State.DEAD, 1)


def test_an_at_most_once_task_whose_device_died_ends_unknown(make_world: MakeWorld) -> None:
    world = make_world(behave=lambda task, fence, device: failing("device_fault"))

    (task_id,) = world.submit(a_task(effect="at_most_once"))
    world.run_for(30.0)

    assert (world.get(task_id).state, world.get(task_id).attempt) == (State.UNKNOWN, 1)


def test_the_first_device_fault_costs_no_try_and_later_ones_do(make_world: MakeWorld) -> None:
    world = make_world(behave=lambda task, fence, device: failing("device_fault"))

    (task_id,) = world.submit(a_task(retries=1))
    world.run_for(60.0)

    record = world.get(task_id)
    assert (record.state, record.attempt) == (State.DEAD, 3)  # one free, one, one retry


def test_a_task_whose_device_goes_out_of_use_runs_on_another(make_world: MakeWorld) -> None:
    def behave(task: object, fence: Fence, device: str) -> Behaviour:
        return Behaviour(takes_s=5.0)

    world = make_world(devices=(CPU, NPU), behave=behave)
    ids = world.submit(*(a_task(resources=small()) for _ in range(12)))
    world.settle()

    world.post(DevicesChanged(devices=(CPU, BROKEN_NPU)))
    assert not world.core.state.lanes["npu-0"].queue
    world.run_for(60.0)

    assert {world.get(i).state for i in ids} == {State.DONE}


def test_a_task_for_a_missing_accelerator_waits_while_the_device_is_only_out_of_use(
    make_world: MakeWorld,
) -> None:
    world = make_world(devices=(CPU, BROKEN_NPU))
    (task_id,) = world.submit(a_task(resources=small(accelerator="npu")))
    world.run_for(300.0)
    assert world.get(task_id).state is State.LEASED
    assert world.core.state.entries[task_id].phase is Phase.WAITING

    world.post(DevicesChanged(devices=(CPU, NPU)))
    world.run_for(5.0)

    assert world.get(task_id).state is State.DONE


def test_tasks_of_an_idle_device_are_claimed_past_a_window_full_of_waiting_ones(
    make_world: MakeWorld,
) -> None:
    world = make_world(devices=(CPU, BROKEN_NPU), limits=Limits(window=8, claim_batch=4))
    waiting = world.submit(*(a_task(resources=small(accelerator="npu")) for _ in range(12)))
    ids = world.submit(*(a_task(resources=small(accelerator="none")) for _ in range(4)))

    world.run_for(10.0)

    assert {world.get(i).state for i in ids} == {State.DONE}
    assert {world.get(i).state for i in waiting} == {State.LEASED}


@pytest.mark.parametrize("after_steps", range(8))
def test_a_cancelled_task_never_ends_otherwise_at_whatever_moment(
    make_world: MakeWorld, after_steps: int
) -> None:
    world = make_world(behave=lambda *_: Behaviour(takes_s=100.0))
    (task_id,) = world.submit(a_task())
    for _ in range(after_steps):
        world.step()

    world.apply(Cancel(task_id=task_id))
    world.run_for(200.0)

    assert world.get(task_id).state is State.CANCELLED
    assert world.effects == []
    assert not world.core.state.entries


def test_a_running_task_whose_time_ran_out_is_stopped(make_world: MakeWorld) -> None:
    world = make_world(behave=lambda *_: Behaviour(takes_s=100.0))

    (task_id,) = world.submit(a_task(expires_after_s=5.0))
    world.run_for(8.0)

    assert world.get(task_id).state is State.EXPIRED
    assert not world.attempts


def test_a_task_whose_time_runs_out_while_its_start_is_written_does_not_run(make_world: MakeWorld) -> None:
    begun: list[str] = []

    def begin(task: TaskSpec, fence: Fence, device_id: str) -> Behaviour:
        begun.append(task.kind)
        return Behaviour()

    world = make_world(behave=begin)

    def is_slow(commit: Commit) -> bool:
        if any(isinstance(operation, Start) for operation in commit.operations):
            world.clock.advance(3.0)
        return False

    world.is_disk_broken = is_slow
    first, second = world.submit(
        a_task(kind="late", expires_after_s=2.0, ordering_key="k"), a_task(kind="next", ordering_key="k")
    )
    world.run_for(10.0)

    assert world.get(first).state is State.EXPIRED
    assert world.get(second).state is State.DONE
    assert begun == ["next"]
    assert not world.core.state.entries


def test_an_attempt_that_outruns_its_limit_is_stopped_by_the_core_and_tried_again(
    make_world: MakeWorld,
) -> None:
    world = make_world(behave=lambda *_: Behaviour(takes_s=1000.0))

    (task_id,) = world.submit(a_task(max_runtime_s=10.0, retries=0))
    world.run_for(30.0)

    record = world.get(task_id)
    assert record.state is State.DEAD
    assert record.outcome is not None
    assert "max_runtime_s" in record.outcome.error


def test_an_attempt_that_does_not_end_even_by_force_is_reported_and_keeps_its_room(
    make_world: MakeWorld,
) -> None:
    world = make_world(behave=lambda *_: Behaviour(takes_s=10_000.0, is_stuck=True))

    (task_id,) = world.submit(a_task(max_runtime_s=10.0, retries=0, effect="at_most_once"))
    world.run_for(120.0)

    assert world.get(task_id).state is State.UNKNOWN
    assert any("does not end" in alarm.message for alarm in world.alarms)
    assert world.core.state.used_cpu_millicores == 1000


def test_a_large_task_is_not_overtaken_for_ever_by_small_ones(make_world: MakeWorld) -> None:
    world = make_world(
        devices=(msgspec.structs.replace(CPU, slots=8),),
        behave=lambda *_: Behaviour(takes_s=3.0),
    )
    world.submit(*(a_task(resources=small(cpu_millicores=1000)) for _ in range(40)))
    (large,) = world.submit(a_task(resources=small(cpu_millicores=4000)))
    world.submit(*(a_task(resources=small(cpu_millicores=1000)) for _ in range(200)))

    world.run_for(60.0)

    assert world.get(large).state is State.DONE


def test_higher_priority_goes_first_inside_the_window(make_world: MakeWorld) -> None:
    order: list[int] = []

    def behave(task: object, fence: Fence, device: str) -> Behaviour:
        order.append(task.priority)  # type: ignore[attr-defined]
        return Behaviour()

    world = make_world(behave=behave)
    world.submit(*(a_task(priority=p, resources=small()) for p in (2, 2, 5, 9, 7)))

    world.run_for(10.0)

    assert order == [9, 7, 5, 2, 2]


def test_a_task_whose_content_is_still_fetched_is_overtaken(make_world: MakeWorld) -> None:
    world = make_world()
    world.content[MODEL] = "the coordinator cannot be reached"
    (waits,) = world.submit(onnx_task(resources=small()))
    (goes,) = world.submit(a_task(resources=small()))

    world.run_for(5.0)
    assert (world.get(waits).state, world.get(goes).state) == (State.LEASED, State.DONE)
    world.content[MODEL] = ""
    world.post(LinkChanged(is_up=True))
    world.run_for(2.0)

    assert world.get(waits).state is State.DONE


def test_a_task_whose_content_nobody_has_is_parked_with_its_name(make_world: MakeWorld) -> None:
    world = make_world()

    (task_id,) = world.submit(onnx_task())
    world.run_for(1.0)

    assert world.get(task_id).state is State.DEAD


def test_stopping_gives_running_attempts_their_grace_and_the_rest_back(make_world: MakeWorld) -> None:
    world = make_world(behave=lambda *_: Behaviour(takes_s=5.0))
    ids = world.submit(*(a_task(resources=small()) for _ in range(5)))
    world.run_for(1.0)

    world.post(StopRequested(grace_s=20.0))
    world.run_for(30.0)

    assert world.has_stopped
    states = [world.get(i).state for i in ids]
    assert states.count(State.DONE) == 2
    assert states.count(State.READY) == 3


def test_attempts_that_outlast_the_grace_cost_no_try(make_world: MakeWorld) -> None:
    world = make_world(behave=lambda *_: Behaviour(takes_s=500.0))
    plain, once = world.submit(a_task(retries=0), a_task(effect="at_most_once"))
    world.run_for(1.0)

    world.post(StopRequested(grace_s=2.0))
    world.run_for(30.0)
    assert world.has_stopped
    assert world.get(plain).state is State.READY
    world.behave = lambda *_: Behaviour()
    world.kill()
    world.run_for(5.0)

    assert world.get(plain).state is State.DONE
    assert world.get(once).state is State.UNKNOWN


@pytest.mark.parametrize("how", ["expired", "cancelled", "returned"])
def test_a_task_runs_at_once_when_the_one_before_it_ends_outside_the_window(
    make_world: MakeWorld, how: str
) -> None:
    world = make_world(facts=ENROLLED)
    elsewhere = Constraints(regions=("south",)) if how == "returned" else Constraints()
    waits = 3.0 if how == "expired" else 50.0
    first = a_task(
        ordering_key="k",
        delay_s=None if how == "returned" else 100.0,
        expires_after_s=waits,
        constraints=elsewhere,
    )
    before, after = world.submit(first, a_task(ordering_key="k"))
    world.run_for(2.0)
    assert world.get(after).state is State.BLOCKED

    if how == "cancelled":
        world.apply(Cancel(task_id=before))
    elif how == "returned":
        outcome = Outcome(status="succeeded")
        world.apply(Return(task_id=before, fence=Fence((1, 1), 1), outcome=outcome))
    world.run_for(3.0)

    assert world.get(after).state is State.DONE


def test_a_cancel_after_the_end_is_refused(make_world: MakeWorld) -> None:
    world = make_world()
    (task_id,) = world.submit(a_task())
    world.run_for(3.0)

    (answer,) = world.apply(Cancel(task_id=task_id))

    assert isinstance(answer, Refused)
    assert world.get(task_id).state is State.DONE
