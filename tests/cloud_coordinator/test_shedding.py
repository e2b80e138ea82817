"""A coordinator with more to do than it can: rows wait at the nodes, and nobody is called silent for it."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

from cloud_coordinator.api.testing import Visitor, visit
from cloud_coordinator.core.events import NodeEnrolled, PressureChanged
from cloud_coordinator.shedding import BEGINS_AT, ENDS_AT, Shedding
from cloud_coordinator.testing import ModelFleet, a_node, placed_on
from skerry.clock import Instant


def at(uptime_s: float) -> Instant:
    return Instant("b", uptime_s)


def test_it_begins_when_too_much_waits_and_ends_only_when_little_does() -> None:
    shedding = Shedding(retry_after_s=10.0)

    assert shedding.measured(BEGINS_AT, at(0.0)) is None
    assert shedding.measured(BEGINS_AT + 1, at(1.0)) == 10.0
    assert shedding.measured(ENDS_AT + 1, at(2.0)) is None
    assert shedding.measured(ENDS_AT, at(3.0)) == 0.0
    assert shedding.measured(BEGINS_AT, at(4.0)) is None


def test_it_is_announced_again_before_what_was_announced_runs_out() -> None:
    shedding = Shedding(retry_after_s=10.0)

    said = [second for second in range(40) if shedding.measured(BEGINS_AT + 1, at(float(second)))]

    assert said == [0, 5, 10, 15, 20, 25, 30, 35]


def test_rows_wait_at_their_node_while_the_coordinator_is_under_pressure(fleet: ModelFleet) -> None:
    fleet.give(PressureChanged(30.0))
    task_id = fleet.offer("n1")
    fleet.pass_time(20.0)

    assert fleet.ledger.task(task_id) is None
    assert fleet.nodes["n1"].state().outbox > 0
    assert {node.status for node in fleet.core.nodes()} == {"online"}

    fleet.give(PressureChanged(0.0))
    fleet.settle()

    assert placed_on(fleet, task_id)
    assert fleet.counted("held_back") == 1


def test_what_was_announced_ends_by_itself(fleet: ModelFleet) -> None:
    fleet.give(PressureChanged(10.0))
    task_id = fleet.offer("n1")

    fleet.pass_time(25.0)

    assert placed_on(fleet, task_id)


def test_a_node_that_comes_later_is_held_back_too(fleet: ModelFleet) -> None:
    fleet.give(PressureChanged(30.0))
    fleet.give(NodeEnrolled(a_node("late")))
    fleet.add("late")
    task_id = fleet.offer("late")

    fleet.settle()

    assert fleet.ledger.task(task_id) is None


def test_a_core_thread_that_falls_behind_holds_its_nodes_back(tmp_path: Path) -> None:
    async def story(visitor: Visitor) -> None:
        thread_waits, may_go_on = threading.Event(), threading.Event()

        def hold(core: Any) -> None:
            thread_waits.set()
            may_go_on.wait(30)

        runtime = visitor.office.runtime
        holding = asyncio.ensure_future(visitor.office.ask(hold))
        await asyncio.to_thread(thread_waits.wait, 30)
        for _ in range(BEGINS_AT + 200):
            runtime.post(PressureChanged(0.0))  # any event: what counts is how many wait
        may_go_on.set()
        await holding

        async with asyncio.timeout(60):
            while True:
                if await counted(visitor, "held_back") and not runtime.shedding.is_on:
                    return
                await asyncio.sleep(0.05)  # the thread works off what waits

    async def counted(visitor: Visitor, name: str) -> int:
        _, found = await visitor.ask("GET", "/v1/counters")
        return sum(c["count"] for c in found["counters"] if c["name"] == name)

    visit(tmp_path, story)
