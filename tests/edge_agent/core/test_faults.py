"""The core against a failing disk, kills at any moment, and random histories: nothing accepted is lost."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from devices.port import Report
from edge_agent.core.actions import Commit
from edge_agent.core.check import check
from edge_agent.core.entry import ALIVE
from edge_agent.core.events import Committed, Observed
from edge_agent.core.limits import Limits
from edge_agent.testing import CPU, NPU, Behaviour, Disk, World
from skerry.fence import Fence
from skerry.ids import TaskId
from skerry.task import Resources, TaskSpec
from skerry.testing import a_task
from task_queue.operations import Advance, Cancel, Claim, Drop, Enqueue, Fail, Finish, Refused, Start
from task_queue.task import FINAL, State

MakeWorld = Callable[..., World]


def has(commit: Commit, *kinds: type) -> bool:
    return any(isinstance(operation, kinds) for operation in commit.operations)


def test_an_end_that_the_disk_refuses_is_written_later_and_the_task_is_not_run_again(
    make_world: MakeWorld,
) -> None:
    world = make_world()
    world.is_disk_broken = lambda commit: has(commit, Finish)
    (first,) = world.submit(a_task())
    world.run_for(30.0)
    assert world.get(first).state is State.RUNNING
    assert [alarm.name for alarm in world.alarms] == ["storage"]

    world.is_disk_broken = lambda commit: False
    world.run_for(30.0)

    assert world.get(first).state is State.DONE
    assert world.effects == [(first, Fence((), 1))]


def test_nothing_is_started_while_the_disk_refuses(make_world: MakeWorld) -> None:
    world = make_world()
    ids = world.submit(*(a_task() for _ in range(4)))
    world.is_disk_broken = lambda commit: True
    world.run_for(60.0)
    assert world.effects == []

    world.is_disk_broken = lambda commit: False
    world.run_for(60.0)

    assert {world.get(i).state for i in ids} == {State.DONE}
    assert len(world.effects) == 4


@pytest.mark.parametrize("kind", [Claim, Start, Finish, Fail])
@pytest.mark.parametrize("every", [2, 3])
def test_a_disk_that_refuses_now_and_then_delays_tasks_and_loses_none(
    make_world: MakeWorld, kind: type, every: int
) -> None:
    seen = 0

    def is_broken(commit: Commit) -> bool:
        nonlocal seen
        seen += has(commit, kind)
        return has(commit, kind) and seen % every == 0

    world = make_world(
        behave=lambda task, fence, device: Behaviour(
            report=Report(status="failed" if fence.attempt == 1 else "succeeded")
        )
    )
    world.is_disk_broken = is_broken

    ids = world.submit(*(a_task() for _ in range(12)))
    world.run_for(200.0)

    assert {world.get(i).state for i in ids} == {State.DONE}
    assert sorted(task_id for task_id, _ in world.effects) == sorted(ids)


@pytest.mark.parametrize("boundary", range(40))
def test_a_kill_between_any_two_actions_loses_nothing(make_world: MakeWorld, boundary: int) -> None:
    world = make_world(devices=(CPU, NPU))
    once = world.submit(*(a_task(effect="at_most_once") for _ in range(2)))
    ids = world.submit(*(a_task(retries=3) for _ in range(6)))
    done = 0
    while done < boundary:
        if not world.step():
            world.run_for(0.5)
        done += 1

    world.kill()
    world.run_for(60.0)

    assert {world.get(i).state for i in ids} == {State.DONE}
    assert {world.get(i).state for i in once} <= {State.DONE, State.UNKNOWN}
    assert_witness_agrees(world, [*ids, *once])


def assert_witness_agrees(world: World, ids: list[TaskId]) -> None:
    """No attempt had an effect twice, at-most-once tasks at most one, and each success has its witness."""
    assert len(world.effects) == len(set(world.effects))
    for task_id in ids:
        record = world.get(task_id)
        fences = [fence for who, fence in world.effects if who == task_id]
        if record.task.effect == "at_most_once":
            assert len(fences) <= 1
        if record.state is State.DONE:
            assert record.fence in fences


class Plan:
    """A random history: what is submitted and what goes wrong, drawn from one seed."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.placed: dict[TaskId, Fence] = {}
        self.fences = 0

    def task(self) -> TaskSpec:
        rng = self.rng
        return a_task(
            priority=rng.randrange(10),
            retries=rng.randrange(3),
            effect=rng.choice(["idempotent", "idempotent", "at_most_once"]),
            max_runtime_s=rng.choice([5.0, 300.0]),
            expires_after_s=rng.choice([None, None, 20.0]),
            delay_s=rng.choice([None, None, 3.0]),
            ordering_key=rng.choice([None, None, "a", "b"]),
            resources=Resources(
                cpu_millicores=rng.choice([100, 1000, 4000]),
                memory_bytes=rng.choice([1 << 20, 1 << 29]),
                accelerator=rng.choice(["any", "none", "npu"]),
            ),
        )

    def behave(self, task: TaskSpec, fence: Fence, device: str) -> Behaviour:
        status = self.rng.choice(["succeeded"] * 4 + ["failed", "device_fault", "invalid", "timed_out"])
        return Behaviour(
            takes_s=self.rng.choice([0.1, 1.0, 7.0]),
            report=Report(status=status, error="" if status == "succeeded" else status),
            is_deaf=self.rng.random() < 0.1,
        )

    def disturb(self, world: World, ids: list[TaskId]) -> None:
        match self.rng.randrange(11):
            case 0:
                world.kill()
            case 1:
                refused = self.rng.choice([Claim, Start, Finish, Fail])
                world.is_disk_broken = lambda commit: has(commit, refused)
            case 2 | 3:
                world.is_disk_broken = lambda commit: False
            case 4 if ids:
                world.apply(Cancel(task_id=self.rng.choice(ids)))
            case 5:
                self.place(world, world.ids.next())
            case 6 if self.placed:
                self.place(world, self.rng.choice(list(self.placed)))
            case 7 if self.placed:
                task_id = self.rng.choice(list(self.placed))
                world.apply(Drop(task_id=task_id, fence=self.placed[task_id]))
            case _:
                world.run_for(self.rng.choice([0.0, 0.3, 2.0]))

    def place(self, world: World, task_id: TaskId) -> None:
        """Place a task here under a fence of its own, the second time above the first."""
        self.fences += 1
        fence = self.placed[task_id] = Fence((1, self.fences))
        world.apply(
            Enqueue(task_id=task_id, task=self.task(), placement=fence, home_node="edge-9", lease_s=20.0)
        )


@settings(max_examples=100, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(seed=st.integers(0, 2**32))
def test_any_history_ends_with_every_task_in_a_final_state_once(seed: int) -> None:
    plan = Plan(seed)
    world = World(
        Disk().open,
        devices=(CPU, NPU),
        behave=plan.behave,
        limits=Limits(window=6, claim_batch=3, stop_s=2.0, overtime_s=1.0),
        seed=seed,
    )
    ids: list[TaskId] = []
    for _ in range(25):
        ids += world.submit(*(plan.task() for _ in range(plan.rng.randrange(3))))
        for _ in range(plan.rng.randrange(6)):
            world.step()
        plan.disturb(world, ids)
    world.is_disk_broken = lambda commit: False
    world.run_for(3000.0)

    assert {world.get(i).state for i in ids} <= FINAL
    assert not [e for e in world.core.state.entries.values() if e.phase in ALIVE]
    assert {world.get(i).state for i in plan.placed} <= FINAL
    assert_witness_agrees(world, [*ids, *plan.placed])
    check(world.core.state)


def test_a_cancel_that_is_heard_of_before_the_start_it_follows_stops_the_attempt(
    make_world: MakeWorld,
) -> None:
    world = make_world()
    (task_id,) = world.submit(a_task())
    while not (isinstance(world.to_do[0], Commit) and has(world.to_do[0], Start)):
        world.step()
    start = world.to_do.popleft()
    assert isinstance(start, Commit)
    answers = world.store.apply(start.operations, now=world.clock.now())

    world.apply(Cancel(task_id=task_id))
    world.post(Committed(token=start.token, answers=tuple(answers)))
    world.run_for(60.0)

    assert world.get(task_id).state is State.CANCELLED
    assert world.effects == []
    assert not world.core.state.entries


def test_a_task_that_found_the_queue_full_has_ended_ones_forgotten_soon(make_world: MakeWorld) -> None:
    world = make_world()
    world.run_for(1.0)
    looked: list[float] = []

    def note(commit: Commit) -> bool:
        looked.extend(world.clock.uptime_s for op in commit.operations if isinstance(op, Advance))
        return False

    world.is_disk_broken = note
    refused = Refused(reason="full", message="the queue holds as much as it may")
    asked = Enqueue(task_id=world.ids.next(), task=a_task())
    began = world.clock.uptime_s
    for _ in range(100):
        world.post(Observed(operations=(asked,), answers=(refused,)))
    world.run_for(3.0)

    assert [at - began <= Limits().full_retry_s + 0.1 for at in looked] == [True]
