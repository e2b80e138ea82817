"""A ledger that was deleted, or restored from an older copy, while its fleet went on."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from cloud_coordinator.core import events as happened
from cloud_coordinator.core.turn import Limits
from cloud_coordinator.ledger.memory import MemoryLedger
from cloud_coordinator.ledger.values import TaskState
from cloud_coordinator.testing import ModelFleet, a_node
from skerry.testing import a_task

Lose = Callable[[ModelFleet, MemoryLedger], MemoryLedger]


def restore(fleet: ModelFleet, older: MemoryLedger) -> MemoryLedger:
    return older


def delete(fleet: ModelFleet, older: MemoryLedger) -> MemoryLedger:
    return MemoryLedger()


def a_fleet() -> tuple[ModelFleet, MemoryLedger]:
    """Home n1 with n2 and n3, in its third term, and a copy of the ledger as it is then."""
    ledger = MemoryLedger()
    fleet = ModelFleet(ledger=ledger, limits=Limits(lease_s=60.0))
    for name in ("n1", "n2", "n3"):
        fleet.add(name)
    for _ in range(2):
        fleet.restart()
        for name in fleet.nodes:
            fleet.connect(name)
    return fleet, copy.deepcopy(ledger)


def go_on_with(fleet: ModelFleet, ledger: MemoryLedger) -> None:
    """Start the coordinator on another ledger; nodes that it does not know enrol again."""
    fleet.ledger = ledger
    fleet.restart()
    for name, node in fleet.nodes.items():
        if ledger.node(name) is None:
            fleet.give(happened.NodeEnrolled(a_node(name, region=node.region)))
        fleet.connect(name)
    fleet.settle()
    fleet.pass_time(20)


def holder(fleet: ModelFleet, task_id: str) -> str:
    return next((node.name for node in fleet.nodes.values() if task_id in node.holds), "")


def offered(fleet: ModelFleet, **fields: Any) -> str:
    task_id = fleet.offer("n1", a_task(**fields))
    fleet.settle()
    assert holder(fleet, task_id)
    return task_id


@pytest.mark.parametrize("lose", [restore, delete])
def test_what_homes_wait_for_is_placed_again_and_comes_home_under_a_higher_term(lose: Lose) -> None:
    fleet, older = a_fleet()
    task_id = offered(fleet)
    before = fleet.nodes[holder(fleet, task_id)].holds[task_id].fence

    go_on_with(fleet, lose(fleet, older))

    after = fleet.nodes[holder(fleet, task_id)].holds[task_id].fence
    assert after > before
    fleet.nodes[holder(fleet, task_id)].finish(task_id)
    fleet.settle()
    assert fleet.nodes["n1"].returned[task_id].outcome.status == "succeeded"
    assert any("lost or restored" in report.text for report in fleet.reports)


@pytest.mark.parametrize("lose", [restore, delete])
def test_what_has_ended_since_does_not_run_again(lose: Lose) -> None:
    fleet, _ = a_fleet()
    task_id = offered(fleet)
    assert isinstance(fleet.ledger, MemoryLedger)
    older = copy.deepcopy(fleet.ledger)
    fleet.nodes[holder(fleet, task_id)].finish(task_id)
    fleet.settle()
    assert task_id in fleet.nodes["n1"].returned
    fleet.restart()
    for name in fleet.nodes:
        fleet.connect(name)

    go_on_with(fleet, lose(fleet, older))
    fleet.pass_time(300)

    assert not holder(fleet, task_id)
    assert [row.task_id for row in fleet.ledger.placed()] == []


@pytest.mark.parametrize("lose", [restore, delete])
def test_at_most_once_is_not_tried_again_by_a_ledger_that_cannot_know(lose: Lose) -> None:
    fleet, older = a_fleet()
    task_id = offered(fleet, effect="at_most_once")

    go_on_with(fleet, lose(fleet, older))

    assert fleet.task(task_id).state is TaskState.ENDED
    assert fleet.nodes["n1"].returned[task_id].outcome.status == "unknown"
    assert fleet.ledger.placements(task_id) == []


def test_a_node_cannot_drive_the_term_beyond_what_can_be_counted() -> None:
    fleet, _ = a_fleet()
    fleet.nodes["n2"].term = 2**62

    fleet.connect("n2")

    assert fleet.core.term == 3
