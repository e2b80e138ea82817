"""Nodes that are not heard of: what they keep, what is placed elsewhere, and who wins when they are back."""

from __future__ import annotations

import msgspec
import pytest

from cloud_coordinator.core import events as happened
from cloud_coordinator.ledger.values import TaskState
from cloud_coordinator.testing import ModelFleet, place_one, placed_on
from skerry.fence import Fence
from skerry.task import Constraints
from skerry.testing import a_task


def other(name: str) -> str:
    return "n3" if name == "n2" else "n2"


def test_a_node_that_is_cut_off_keeps_its_work_before_the_lease_ends(fleet: ModelFleet) -> None:
    task_id, node = place_one(fleet)
    fleet.cut(node)
    fleet.pass_time(50)

    assert fleet.core.memory.nodes[node].record.status == "stale"
    assert len(fleet.ledger.placements(task_id)) == 1

    fleet.nodes[node].finish(task_id)
    fleet.connect(node)
    fleet.settle()
    assert fleet.nodes["n1"].returned[task_id].outcome.status == "succeeded"
    assert fleet.counted("fenced") == 0


def test_after_the_lease_the_task_is_placed_elsewhere_and_the_late_result_is_refused(
    fleet: ModelFleet,
) -> None:
    task_id, node = place_one(fleet)
    fleet.cut(node)
    fleet.pass_time(70)
    second = other(node)
    assert fleet.nodes[second].holds[task_id].fence == Fence((1, 2))

    fleet.nodes[node].finish(task_id, result="late")
    fleet.connect(node)
    fleet.settle()
    assert fleet.task(task_id).state is TaskState.PLACED
    assert fleet.counted("fenced") == 1

    fleet.nodes[second].finish(task_id, result="current")
    fleet.settle()
    assert fleet.nodes["n1"].returned[task_id].outcome.result == "current"
    assert [one.ended for one in fleet.ledger.placements(task_id)] == ["lapsed", "ended"]


def test_a_node_back_before_another_place_is_found_keeps_its_task(fleet: ModelFleet) -> None:
    task_id, node = place_one(fleet, constraints=Constraints(nodes=("n2", "n3")))
    fleet.cut(other(node))
    fleet.cut(node)
    fleet.pass_time(300)
    assert len(fleet.ledger.placements(task_id)) == 1

    fleet.nodes[node].finish(task_id)
    fleet.connect(node)
    fleet.settle()

    assert fleet.nodes["n1"].returned[task_id].outcome.status == "succeeded"


def test_a_pinned_task_of_a_node_offline_for_three_days_has_one_placement(fleet: ModelFleet) -> None:
    task_id, node = place_one(fleet, constraints=Constraints(nodes=("n2",)))
    fleet.cut(node)
    fleet.pass_time(72 * 3600, step_s=600)

    assert len(fleet.ledger.placements(task_id)) == 1
    fleet.nodes[node].finish(task_id)
    fleet.connect(node)
    fleet.settle()
    assert fleet.nodes["n1"].returned[task_id].outcome.status == "succeeded"


def test_reports_renew_the_lease_of_what_the_node_holds(fleet: ModelFleet) -> None:
    task_id, _ = place_one(fleet)
    fleet.pass_time(600)

    assert len(fleet.ledger.placements(task_id)) == 1


def test_an_at_most_once_task_is_never_placed_again(fleet: ModelFleet) -> None:
    task_id, node = place_one(fleet, effect="at_most_once")
    fleet.cut(node)
    fleet.pass_time(70)

    assert fleet.nodes["n1"].returned[task_id].outcome.status == "unknown"
    assert len(fleet.ledger.placements(task_id)) == 1

    fleet.nodes[node].finish(task_id)
    fleet.connect(node)
    fleet.settle()
    assert fleet.task(task_id).outcome == fleet.nodes["n1"].returned[task_id].outcome
    assert fleet.counted("fenced") == 1


def test_our_own_outage_counts_against_no_node(fleet: ModelFleet) -> None:
    task_id, node = place_one(fleet, effect="at_most_once")
    fleet.give(happened.BrokerDown())
    for name in fleet.nodes:
        fleet.cut(name)
    fleet.pass_time(1000)
    fleet.give(happened.BrokerUp())
    for name in fleet.nodes:
        fleet.nodes[name].is_cut = False
    fleet.pass_time(5)

    assert fleet.task(task_id).state is TaskState.PLACED
    assert fleet.core.memory.nodes[node].record.status == "online"


def test_a_placement_that_a_node_dropped_before_starting_goes_elsewhere(fleet: ModelFleet) -> None:
    task_id, node = place_one(fleet)
    del fleet.nodes[node].holds[task_id]
    fleet.pass_time(5)
    assert len(fleet.ledger.placements(task_id)) == 1, "one report may overtake the row that tells of the end"
    fleet.pass_time(5)

    assert len(fleet.ledger.placements(task_id)) == 2
    assert placed_on(fleet, task_id)


def test_an_end_on_its_way_is_not_taken_for_a_loss(fleet: ModelFleet) -> None:
    task_id, node = place_one(fleet)
    fleet.nodes[node].finish(task_id)
    state = fleet.nodes[node].state()
    for _ in range(5):
        fleet.give(happened.Heard(node, "state", msgspec.json.encode(state)))

    assert fleet.task(task_id).state is TaskState.PLACED
    assert len(fleet.ledger.placements(task_id)) == 1


@pytest.mark.parametrize(("effect", "status"), [("idempotent", ""), ("at_most_once", "unknown")])
def test_a_node_that_lost_its_store_lost_what_it_had_taken(
    fleet: ModelFleet, effect: str, status: str
) -> None:
    task_id, node = place_one(fleet, effect=effect)
    lost = fleet.nodes[node]
    lost.store_epoch, lost.command_epoch, lost.marks = "store-2", "", {}
    lost.holds.clear()
    fleet.connect(node)
    fleet.settle()

    ended = fleet.nodes["n1"].returned.get(task_id)
    assert (ended.outcome.status if ended else "") == status
    assert bool(placed_on(fleet, task_id)) is not bool(status)


def test_a_revoked_node_is_not_heard_and_its_work_goes_elsewhere(fleet: ModelFleet) -> None:
    task_id, node = place_one(fleet)
    fleet.give(happened.NodeRevoked(node))
    fleet.settle()

    assert task_id in fleet.nodes[other(node)].holds
    fleet.nodes[node].finish(task_id)
    fleet.connect(node)
    assert fleet.counted("refused", "unknown_sender") > 0
    assert fleet.task(task_id).state is TaskState.PLACED


def test_a_home_that_is_gone_finds_its_result_when_it_is_back(fleet: ModelFleet) -> None:
    task_id, node = place_one(fleet)
    fleet.cut("n1")
    fleet.nodes[node].finish(task_id)
    fleet.settle()
    fleet.pass_time(72 * 3600, step_s=3600)
    fleet.restart()

    fleet.connect("n1")
    fleet.settle()

    assert fleet.nodes["n1"].returned[task_id].outcome.status == "succeeded"


def _taken_just_before_its_lease_ends(fleet: ModelFleet) -> tuple[str, str]:
    """Place a task on a node that is away, and let it come back at the last moment; return both."""
    for name in ("n2", "n3"):
        fleet.cut(name)
    task_id = fleet.offer("n1", a_task(effect="at_most_once"))
    fleet.settle()
    node = fleet.task(task_id).node
    fleet.clock.advance(fleet.limits.lease_s - 1.0)
    fleet.connect(node)
    return task_id, node


def test_a_node_that_has_just_taken_a_task_is_given_time_to_say_so(fleet: ModelFleet) -> None:
    task_id, node = _taken_just_before_its_lease_ends(fleet)

    fleet.clock.advance(4.0)
    fleet.settle()
    assert fleet.task(task_id).state is TaskState.PLACED, "its lease ran out, but it was heard 4 s ago"
    fleet.pass_time(2 * fleet.limits.lease_s)

    assert placed_on(fleet, task_id) == node


def test_a_node_that_takes_a_task_and_is_not_heard_again_keeps_it_no_longer(fleet: ModelFleet) -> None:
    task_id, node = _taken_just_before_its_lease_ends(fleet)

    fleet.cut(node)
    fleet.pass_time(15.0)

    assert fleet.task(task_id).state is TaskState.ENDED
