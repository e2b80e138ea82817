"""Recurring tasks in the agent: what comes due runs, and whoever watches is told."""

from __future__ import annotations

from edge_agent.core.actions import Notify
from edge_agent.testing import Disk, World
from skerry.recurring import RecurringSpec
from skerry.testing import a_task
from task_queue.operations import DropRecurring, Ok, PutRecurring
from task_queue.store import TaskFilter
from task_queue.task import State


def test_a_recurring_task_runs_again_and_again_without_anybody_asking() -> None:
    world = World(Disk().open)
    spec = RecurringSpec(name="report", task=a_task(kind="report"), every_s=100)

    assert world.apply(PutRecurring(recurring_id=world.ids.next(), spec=spec)) == [Ok()]
    world.run_for(1002)

    records = world.store.find(TaskFilter())
    assert [record.state for record in records] == [State.DONE] * 10
    assert len(world.effects) == 10
    world.apply(DropRecurring(name="report"))
    world.run_for(1000)
    assert len(world.effects) == 10


def test_whoever_watches_hears_of_a_task_that_came_due() -> None:
    world = World(Disk().open)
    spec = RecurringSpec(name="report", task=a_task(), every_s=60)
    world.apply(PutRecurring(recurring_id=world.ids.next(), spec=spec))
    world.run_for(59)
    told: list[State] = []
    perform = world._perform

    def listen(action: object) -> None:
        if isinstance(action, Notify):
            told.append(action.state)
        perform(action)  # type: ignore[arg-type]  # every action of the core passes here

    world._perform = listen  # type: ignore[method-assign]
    world.run_for(3)

    assert told == [State.READY, State.RUNNING, State.DONE]


def test_a_kill_between_runs_loses_none_and_repeats_none() -> None:
    world = World(Disk().open)
    spec = RecurringSpec(name="report", task=a_task(), every_s=60)
    world.apply(PutRecurring(recurring_id=world.ids.next(), spec=spec))
    for _ in range(10):
        world.run_for(60)
        world.kill()
    world.run_for(5)

    keys = [record.task.idempotency_key for record in world.store.find(TaskFilter())]
    assert len(keys) == len(set(keys)) == 10
