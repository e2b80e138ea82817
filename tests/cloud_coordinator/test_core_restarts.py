"""The coordinator itself stops at any commit, or starts anew: nothing is lost and nothing done twice."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cloud_coordinator.core import events as happened
from cloud_coordinator.core.turn import Limits
from cloud_coordinator.ledger.sqlite import SqliteLedger
from cloud_coordinator.ledger.values import TaskState
from cloud_coordinator.testing import ModelFleet, place_one, placed_on
from skerry.fence import Fence
from skerry.messages import (
    LEASE_RAN_OUT,
    TaskWithdrawn,
    row_of,
)
from skerry.task import Constraints, OnnxSpec
from skerry.testing import a_task


class StopsAtCommit(SqliteLedger):
    """A ledger whose process dies at the n-th outermost commit: before it is written, or just after."""

    left: int = -1
    after: bool = False

    def _execute(self, sql: str) -> None:
        if sql == "COMMIT":
            self.left -= 1
            if self.left == 0 and not self.after:
                raise KeyboardInterrupt
            super()._execute(sql)
            if self.left == 0:
                raise KeyboardInterrupt
            return
        super()._execute(sql)


def a_life(fleet: ModelFleet) -> Callable[[], list[str]]:
    """Three tasks: one ends well, one is refused once, one is withdrawn; steps can be repeated at will."""
    ids = [fleet.offer("n1") for _ in range(3)]

    def step() -> list[str]:
        fleet.settle()
        for node in fleet.nodes.values():
            for task_id in list(node.holds):
                if task_id == ids[1] and not fleet.task(task_id).excluded:
                    node.refuse(task_id, "not now")
                elif task_id != ids[2]:
                    node.finish(task_id)
        fleet.settle()
        return ids

    fleet.withdraw("n1", ids[2])
    return step


@pytest.mark.parametrize("after", [False, True], ids=["before the commit", "after the commit"])
def test_a_restart_at_every_commit_loses_and_repeats_nothing(tmp_path: Path, after: bool) -> None:
    for number in range(1, 40, 3):
        path = tmp_path / f"{number}.db"
        ledger = StopsAtCommit(path)
        fleet = ModelFleet(ledger=ledger)
        for name in ("n1", "n2", "n3"):
            fleet.add(name)
        step = a_life(fleet)
        ledger.left, ledger.after = number, after
        for _ in range(4):
            try:
                ids = step()
            except KeyboardInterrupt:
                ledger.close()
                fleet.ledger = ledger = StopsAtCommit(path)
                fleet.restart()
        ledger.left = -1
        for name in fleet.nodes:
            fleet.connect(name)
        for _ in range(3):
            ids = step()

        states = [fleet.task(task_id).state for task_id in ids]
        assert states == [TaskState.ENDED, TaskState.ENDED, TaskState.WITHDRAWN], number
        assert sorted(fleet.nodes["n1"].returned) == sorted(ids[:2]), number
        for task_id in ids[:2]:
            ends = [one.ended for one in fleet.ledger.placements(task_id)]
            assert ends.count("ended") == 1, (number, ends)
        ledger.close()


def refused_by_all(fleet: ModelFleet, reason: str, **fields: Any) -> str:
    """Offer a task that every node refuses."""
    task_id = fleet.offer("n1", a_task(**fields))
    fleet.settle()
    while node := placed_on(fleet, task_id):
        fleet.nodes[node].refuse(task_id, reason)
        fleet.settle()
    assert fleet.task(task_id).state is TaskState.PENDING
    return task_id


def test_a_refusal_does_not_count_for_ever(fleet: ModelFleet) -> None:
    task_id = refused_by_all(fleet, "the queue holds as much as it may")

    fleet.pass_time(60)
    assert not placed_on(fleet, task_id)
    fleet.pass_time(700)

    assert placed_on(fleet, task_id)
    assert len(fleet.ledger.placements(task_id)) == 3


def test_a_lease_that_ran_out_at_a_node_that_was_away_is_no_refusal(fleet: ModelFleet) -> None:
    task_id, node = place_one(fleet, constraints=Constraints(nodes=("n2",)))

    fleet.nodes[node].refuse(task_id, LEASE_RAN_OUT)
    fleet.settle()

    assert placed_on(fleet, task_id) == node
    assert [placement.ended for placement in fleet.ledger.placements(task_id)] == ["lapsed", ""]


def test_a_task_that_is_always_refused_is_asked_of_nodes_ever_more_seldom(fleet: ModelFleet) -> None:
    task_id = refused_by_all(fleet, "no")
    for _ in range(24 * 6):
        fleet.pass_time(600, step_s=60)
        if node := placed_on(fleet, task_id):
            fleet.nodes[node].refuse(task_id, "no")
            fleet.settle()

    assert 10 < len(fleet.ledger.placements(task_id)) < 60


def test_content_that_arrives_late_has_its_tasks_planned_again(fleet: ModelFleet) -> None:
    model = "sha256:" + "ab" * 32
    wanting = refused_by_all(fleet, "nobody has the model", spec=OnnxSpec(model=model, inputs={}))
    other_one = refused_by_all(fleet, "a rule")

    fleet.give(happened.ContentStored(model))
    fleet.settle()

    assert placed_on(fleet, wanting)
    assert not placed_on(fleet, other_one)


def test_a_restart_begins_a_new_term_and_keeps_what_is_placed() -> None:
    fleet = ModelFleet(limits=Limits(lease_s=60))
    for name in ("n1", "n2"):
        fleet.add(name)
    task_id, _ = place_one(fleet)
    fleet.restart()
    later = fleet.offer("n1")
    fleet.pass_time(30)

    assert len(fleet.ledger.placements(task_id)) == 1
    assert fleet.nodes["n2"].holds[later].fence == Fence((2, 1))
    fleet.nodes["n2"].finish(task_id)
    fleet.settle()
    assert fleet.nodes["n1"].returned[task_id].outcome.status == "succeeded"


def test_rows_of_a_message_type_are_named_as_on_the_wire() -> None:
    assert row_of(TaskWithdrawn(task_id="1" * 32))[0] == "task.withdrawn"
