"""What becomes of a task that its home cannot run: the coordinator's core, on a virtual clock."""

from __future__ import annotations

import pytest

from cloud_coordinator.ledger.values import TaskState
from cloud_coordinator.testing import ModelFleet, place_one, placed_on
from skerry.fence import Fence
from skerry.messages import (
    Lane,
    Outcome,
    TaskEnded,
    TaskOffered,
    TaskWithdrawn,
)
from skerry.task import Resources
from skerry.testing import a_task


def other(name: str) -> str:
    return "n3" if name == "n2" else "n2"


def test_an_offered_task_is_placed_ends_and_returns_home(fleet: ModelFleet) -> None:
    task_id, node = place_one(fleet)
    fence = fleet.nodes[node].finish(task_id, result={"hz": 220})
    fleet.settle()

    returned = fleet.nodes["n1"].returned[task_id]
    assert (returned.outcome.result, returned.fence) == ({"hz": 220}, fence)
    entry = fleet.task(task_id)
    assert (entry.state, entry.fence, entry.node) == (TaskState.ENDED, fence, node)
    assert [one.ended for one in fleet.ledger.placements(task_id)] == ["ended"]


def test_the_home_hears_where_its_task_went_and_why(fleet: ModelFleet) -> None:
    task_id, node = place_one(fleet)

    (notice,) = fleet.nodes["n1"].told
    assert (notice.task_id, notice.node) == (task_id, node)
    assert {candidate.node for candidate in notice.decision.candidates} >= {"n2", "n3"}
    assert len(fleet.waited_s) == 1
    assert 0 < fleet.waited_s[0] < 1


def test_the_first_fence_of_a_term_is_its_number_and_one(fleet: ModelFleet) -> None:
    task_id, node = place_one(fleet)

    assert fleet.nodes[node].holds[task_id].fence == Fence((1, 1))


def test_a_duplicate_offer_changes_nothing(fleet: ModelFleet) -> None:
    task_id, node = place_one(fleet)
    before = fleet.task(task_id)

    fleet.nodes["n1"].say(TaskOffered(task_id=task_id, task=a_task()))
    fleet.settle()

    assert fleet.task(task_id) == before
    assert fleet.counted("duplicates", "task.offered") == 1
    assert placed_on(fleet, task_id) == node


def test_a_finished_task_is_never_placed_again_and_its_home_hears_the_end_once_more(
    fleet: ModelFleet,
) -> None:
    task_id, node = place_one(fleet)
    fleet.nodes[node].finish(task_id)
    fleet.settle()
    fleet.nodes["n1"].returned.clear()

    fleet.nodes["n1"].say(TaskOffered(task_id=task_id, task=a_task()))
    fleet.settle()

    assert fleet.task(task_id).state is TaskState.ENDED
    assert not placed_on(fleet, task_id)
    assert fleet.nodes["n1"].returned[task_id].outcome.status == "succeeded"


def test_a_failure_that_its_home_replays_is_placed_under_a_higher_fence(fleet: ModelFleet) -> None:
    task_id, node = place_one(fleet)
    first = fleet.nodes[node].finish(task_id, status="failed")
    fleet.settle()

    fleet.nodes["n1"].say(TaskOffered(task_id=task_id, task=a_task()))
    fleet.settle()

    again = placed_on(fleet, task_id)
    assert first < fleet.nodes[again].holds[task_id].fence


def test_a_task_that_its_own_node_finished_is_recorded(fleet: ModelFleet) -> None:
    task_id = "f" * 32
    ended = TaskEnded(task_id=task_id, task_kind="k", fence=Fence((), 2), outcome=Outcome(status="succeeded"))
    for _ in range(2):
        fleet.nodes["n1"].say(ended)
    fleet.settle()

    entry = fleet.task(task_id)
    assert (entry.state, entry.home_node, entry.fence, entry.task) == (
        TaskState.ENDED,
        "n1",
        Fence((), 2),
        None,
    )
    assert fleet.counted("duplicates", "task.ended") == 1


def test_a_refused_placement_goes_elsewhere_with_the_reason_kept(fleet: ModelFleet) -> None:
    task_id, node = place_one(fleet)

    fleet.nodes[node].refuse(task_id, "memory cap")
    fleet.settle()

    assert placed_on(fleet, task_id) == other(node)
    assert fleet.task(task_id).excluded == {node: "memory cap"}
    assert [one.ended for one in fleet.ledger.placements(task_id)] == ["refused", ""]


def test_a_task_that_all_refuse_waits_and_its_home_is_told_once(fleet: ModelFleet) -> None:
    task_id, node = place_one(fleet)
    fleet.nodes[node].refuse(task_id, "memory cap")
    fleet.settle()
    fleet.nodes[other(node)].refuse(task_id, "memory cap")
    fleet.pass_time(60)

    assert fleet.task(task_id).state is TaskState.PENDING
    waits = [notice for notice in fleet.nodes["n1"].told if not notice.node]
    assert len(waits) == 1
    assert "memory cap" in str(waits[0].decision)


def test_a_node_that_starts_anew_may_take_what_it_refused(fleet: ModelFleet) -> None:
    task_id, node = place_one(fleet)
    fleet.nodes[node].refuse(task_id, "memory cap")
    fleet.settle()
    second = placed_on(fleet, task_id)
    fleet.nodes[second].refuse(task_id, "memory cap")
    fleet.settle()

    fleet.connect(node)
    fleet.settle()

    assert placed_on(fleet, task_id) == node


def test_an_impossible_task_waits_with_reasons_until_a_node_comes_that_can(fleet: ModelFleet) -> None:
    task_id = fleet.offer("n1", a_task(resources=Resources(accelerator="gpu")))
    fleet.settle()
    assert fleet.task(task_id).state is TaskState.PENDING
    assert "gpu" in fleet.task(task_id).waits

    fleet.add("n4", device_class="gpu")
    fleet.settle()

    assert placed_on(fleet, task_id) == "n4"


def test_a_waiting_task_expires_by_its_own_time_and_says_why(fleet: ModelFleet) -> None:
    task_id = fleet.offer("n1", a_task(resources=Resources(accelerator="gpu"), expires_after_s=30.0))
    fleet.settle()
    fleet.pass_time(35)

    outcome = fleet.nodes["n1"].returned[task_id].outcome
    assert outcome.status == "expired"
    assert "gpu" in outcome.error


def test_a_placed_task_carries_the_time_that_is_left(fleet: ModelFleet) -> None:
    for name in ("n2", "n3"):
        fleet.cut(name)
    fleet.pass_time(20)
    task_id = fleet.offer("n1", a_task(expires_after_s=100.0))
    fleet.pass_time(10)
    fleet.connect("n2")
    fleet.settle()

    left = fleet.nodes["n2"].holds[task_id].task.expires_after_s
    assert left is not None
    assert 94 < left < 96, "it was offered 5 s before it was placed"


def test_a_placed_task_carries_what_is_left_of_its_deadline(fleet: ModelFleet) -> None:
    for name in ("n2", "n3"):
        fleet.cut(name)
    fleet.pass_time(20)
    task_id = fleet.offer("n1", a_task(deadline_s=100.0))
    late_id = fleet.offer("n1", a_task(deadline_s=1.0))
    fleet.pass_time(10)
    fleet.connect("n2")
    fleet.settle()

    left, late = (fleet.nodes["n2"].holds[each].task.deadline_s for each in (task_id, late_id))
    assert left is not None
    assert 94 < left < 96, "it was offered 5 s before it was placed"
    assert late == 0.001, "it has passed, and cannot be met"


def ask_for_word(fleet: ModelFleet, task_id: str) -> None:
    """What its home says when the task's own time has run out and it does not know how it ended."""
    fleet.nodes["n1"].say(TaskOffered(task_id=task_id, task=a_task(expires_after_s=0.001)))
    fleet.settle()


def test_a_home_that_asks_of_a_task_unknown_here_hears_that_it_expired(fleet: ModelFleet) -> None:
    task_id = "e" * 32

    ask_for_word(fleet, task_id)

    assert fleet.nodes["n1"].returned[task_id].outcome.status == "expired"
    assert fleet.ledger.placements(task_id) == []


def test_a_home_that_asks_of_a_task_that_waits_ends_it(fleet: ModelFleet) -> None:
    task_id = fleet.offer("n1", a_task(resources=Resources(accelerator="gpu"), expires_after_s=3600.0))
    fleet.settle()

    ask_for_word(fleet, task_id)

    assert fleet.nodes["n1"].returned[task_id].outcome.status == "expired"
    assert fleet.task(task_id).state is TaskState.ENDED


def test_a_home_that_asks_of_a_placed_task_hears_how_it_ends(fleet: ModelFleet) -> None:
    task_id, node = place_one(fleet, expires_after_s=3600.0)

    ask_for_word(fleet, task_id)
    assert placed_on(fleet, task_id) == node
    assert task_id not in fleet.nodes["n1"].returned
    fleet.nodes[node].finish(task_id)
    fleet.settle()

    assert fleet.nodes["n1"].returned[task_id].outcome.status == "succeeded"


@pytest.mark.parametrize("status", ["succeeded", "failed"])
def test_a_home_that_asks_of_a_task_that_has_ended_hears_it_once_more(fleet: ModelFleet, status: str) -> None:
    task_id, node = place_one(fleet, expires_after_s=3600.0)
    fleet.nodes[node].finish(task_id, status=status)
    fleet.settle()
    fleet.nodes["n1"].returned.clear()

    ask_for_word(fleet, task_id)

    assert fleet.nodes["n1"].returned[task_id].outcome.status == status
    assert not placed_on(fleet, task_id)


def test_a_task_with_no_time_left_expires_instead_of_being_placed(fleet: ModelFleet) -> None:
    task_id = fleet.offer("n1", a_task(expires_after_s=0.001))
    fleet.settle()

    assert fleet.nodes["n1"].returned[task_id].outcome.status == "expired"
    assert all(task_id not in node.holds for node in fleet.nodes.values())


def test_a_withdrawn_task_is_dropped_where_it_runs_and_its_late_result_is_fenced(fleet: ModelFleet) -> None:
    task_id, node = place_one(fleet)
    fleet.cut(node)
    fleet.withdraw("n1", task_id)
    fleet.settle()
    fleet.nodes[node].finish(task_id)
    fleet.connect(node)
    fleet.settle()

    assert fleet.task(task_id).state is TaskState.WITHDRAWN
    assert task_id not in fleet.nodes["n1"].returned
    assert fleet.counted("fenced") == 1


def test_a_withdrawal_that_overtakes_its_offer_places_nothing(fleet: ModelFleet) -> None:
    task_id = "e" * 32
    fleet.nodes["n1"].say(TaskWithdrawn(task_id=task_id), Lane.CONTROL)
    fleet.settle()
    fleet.nodes["n1"].say(TaskOffered(task_id=task_id, task=a_task()))
    fleet.settle()

    assert fleet.task(task_id).state is TaskState.WITHDRAWN
    assert not placed_on(fleet, task_id)
