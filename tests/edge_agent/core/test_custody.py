"""Tasks that leave this node or came from another: parked, handed over, placed, refused, revoked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from edge_agent.testing import CPU, FACTS, NPU, Behaviour, World
from skerry.fence import Fence
from skerry.ids import TaskId
from skerry.messages import Lane, Outcome
from skerry.task import Constraints, Resources, TaskSpec
from skerry.testing import a_task
from task_queue.operations import Drop, Enqueue, RecordPlacement, Return
from task_queue.task import State

MakeWorld = Callable[..., World]
ENROLLED = msgspec.structs.replace(FACTS, is_enrolled=True)
BROKEN_NPU = msgspec.structs.replace(NPU, usable=False, reason="it was unplugged")


def small(**fields: Any) -> Resources:
    return Resources(**{"cpu_millicores": 100, "memory_bytes": 1 << 20, **fields})


def test_what_can_never_run_here_is_parked_with_the_reason_when_there_is_no_coordinator(
    make_world: MakeWorld,
) -> None:
    world = make_world()

    (task_id,) = world.submit(a_task(constraints=Constraints(regions=("south",))))
    world.run_for(1.0)

    record = world.get(task_id)
    assert record.state is State.DEAD
    assert record.outcome is not None
    assert "south" in record.outcome.error


def test_a_task_that_needs_more_memory_than_the_node_has_names_both(make_world: MakeWorld) -> None:
    world = make_world()

    (task_id,) = world.submit(a_task(resources=small(memory_bytes=1 << 40)))
    world.run_for(1.0)

    outcome = world.get(task_id).outcome
    assert outcome is not None
    assert "1024.0 GiB" in outcome.error
    assert "1.0 GiB" in outcome.error


def test_what_can_never_run_here_is_handed_over_and_its_end_comes_home(make_world: MakeWorld) -> None:
    world = make_world(facts=ENROLLED)
    (task_id,) = world.submit(a_task(constraints=Constraints(regions=("south",))))
    world.run_for(1.0)
    assert world.get(task_id).state is State.HANDED_OVER
    offered = world.store.outbox(Lane.LIVE, 0, limit=10, limit_bytes=1 << 20)
    assert [row.kind for row in offered] == ["task.offered"]
    decision = world.get(task_id).decision
    assert decision is not None

    placement = Fence((1, 7), 0)
    world.apply(RecordPlacement(task_id=task_id, fence=placement, node="edge-9", decision=decision))
    assert world.get(task_id).placed_on == "edge-9"
    outcome = Outcome(status="succeeded", result=42, node="edge-9")
    world.apply(Return(task_id=task_id, fence=placement.with_attempt(1), outcome=outcome))

    assert world.get(task_id).state is State.DONE
    assert world.effects == []


def test_an_offer_that_finds_no_coordinator_ends_with_its_time_and_late_word_is_counted(
    make_world: MakeWorld,
) -> None:
    world = make_world(facts=ENROLLED)
    (task_id,) = world.submit(a_task(constraints=Constraints(regions=("south",)), expires_after_s=20.0))
    world.run_for(19.0)
    before = world.get(task_id).state

    world.run_for(2.0)
    world.apply(Return(task_id=task_id, fence=Fence((1, 1), 1), outcome=Outcome(status="succeeded")))

    assert before is State.HANDED_OVER
    assert world.get(task_id).state is State.EXPIRED
    assert world.core.state.counts["returns_ended"] == 1


def test_a_task_that_no_device_takes_for_long_is_offered_to_the_coordinator(make_world: MakeWorld) -> None:
    world = make_world(facts=ENROLLED, devices=(CPU, BROKEN_NPU))

    (task_id,) = world.submit(a_task(resources=small(accelerator="npu")))
    world.run_for(50.0)
    assert world.get(task_id).state is State.LEASED
    world.run_for(60.0)

    assert world.get(task_id).state is State.HANDED_OVER


def place(world: World, fence: Fence, task: TaskSpec | None = None) -> TaskId:
    task_id = world.ids.next()
    world.apply(
        Enqueue(task_id=task_id, task=task or a_task(), placement=fence, home_node="edge-9", lease_s=600.0)
    )
    return task_id


def test_a_placed_task_runs_under_its_placement_and_reports(make_world: MakeWorld) -> None:
    world = make_world(facts=ENROLLED)

    task_id = place(world, Fence((1, 3), 0))
    world.run_for(2.0)

    assert world.effects == [(task_id, Fence((1, 3), 1))]
    rows = world.store.outbox(Lane.LIVE, 0, limit=10, limit_bytes=1 << 20)
    assert "task.ended" in [row.kind for row in rows]


def test_the_same_placement_twice_runs_once(make_world: MakeWorld) -> None:
    world = make_world(facts=ENROLLED)
    task_id = place(world, Fence((1, 3), 0))
    again = Enqueue(
        task_id=task_id, task=a_task(), placement=Fence((1, 3), 0), home_node="edge-9", lease_s=600.0
    )

    world.settle()
    world.apply(again)
    world.run_for(3.0)
    world.apply(again)
    world.run_for(3.0)

    assert world.effects == [(task_id, Fence((1, 3), 1))]


def test_a_placed_task_that_cannot_run_here_is_refused(make_world: MakeWorld) -> None:
    world = make_world(facts=ENROLLED)

    task_id = place(world, Fence((1, 3), 0), a_task(constraints=Constraints(regions=("south",))))
    world.run_for(1.0)

    kinds = [row.kind for row in world.store.outbox(Lane.CONTROL, 0, limit=10, limit_bytes=1 << 20)]
    kinds += [row.kind for row in world.store.outbox(Lane.LIVE, 0, limit=10, limit_bytes=1 << 20)]
    assert kinds == ["placement.refused"]
    assert task_id not in world.core.state.entries


def test_a_revoked_placement_stops_its_attempt_and_is_forgotten(make_world: MakeWorld) -> None:
    world = make_world(facts=ENROLLED, behave=lambda *_: Behaviour(takes_s=100.0))
    task_id = place(world, Fence((1, 3), 0))
    world.run_for(1.0)
    assert task_id in world.attempts

    world.apply(Drop(task_id=task_id, fence=Fence((1, 3), 0)))
    world.run_for(1.0)

    assert task_id not in world.attempts
    assert task_id not in world.core.state.entries
    assert world.effects == []


def test_a_task_placed_again_waits_until_the_old_attempt_is_seen_to_end(make_world: MakeWorld) -> None:
    deaf = Behaviour(takes_s=100.0, is_deaf=True)
    world = make_world(
        facts=ENROLLED, behave=lambda task, fence, device: deaf if fence.path == (1, 3) else Behaviour()
    )
    task_id = place(world, Fence((1, 3), 0))
    world.run_for(1.0)
    world.apply(Drop(task_id=task_id, fence=Fence((1, 3), 0)))
    again = Fence((1, 4), 0)

    world.apply(Enqueue(task_id=task_id, task=a_task(), placement=again, home_node="edge-9", lease_s=600.0))
    world.run_for(2.0)
    assert world.effects == []  # World asserts that no attempt runs beside its predecessor
    world.run_for(60.0)

    assert [fence.path for _, fence in world.effects] == [(1, 4)]
