"""What decisions are told of the node's memory, and that a task which fits later waits its turn."""

from __future__ import annotations

from collections.abc import Callable

from edge_agent.core.ruling import Ruling
from edge_agent.testing import World
from policy.port import NodeView
from skerry.clock import Instant
from skerry.ids import TaskId
from skerry.task import Resources, TaskSpec
from skerry.testing import a_task
from task_queue.task import State

MakeWorld = Callable[..., World]
BIG = Resources(cpu_millicores=100, memory_bytes=700 << 20)


def test_a_decision_sees_what_is_free_and_a_task_that_fits_later_starts_as_soon_as_it_does(
    make_world: MakeWorld,
) -> None:
    world = make_world()
    seen: list[NodeView] = []
    decide = world.core._decide

    def watched(task_id: TaskId, task: TaskSpec, node: NodeView, now: Instant) -> Ruling:
        seen.append(node)
        return decide(task_id, task, node, now)

    world.core._decide = watched

    (first,) = world.submit(a_task(resources=BIG))
    world.run_for(0.5)
    (second,) = world.submit(a_task(resources=BIG))
    world.run_for(0.4)

    assert [view.free_memory_bytes for view in seen] == [1 << 30, (1 << 30) - (700 << 20)]
    assert {view.memory_bytes for view in seen} == {1 << 30}
    assert (world.get(first).state, world.get(second).state) == (State.RUNNING, State.LEASED)
    world.run_for(0.2)
    assert (world.get(first).state, world.get(second).state) == (State.DONE, State.RUNNING)
