"""The applier: what still holds is fenced, what the fleet has outrun is given back with the reason."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from cloud_coordinator.placement.applier import apply_plan, next_fence
from cloud_coordinator.placement.planner import plan
from cloud_coordinator.placement.request import Applied, Plan
from cloud_coordinator.placement.settings import PlacementSettings
from cloud_coordinator.placement.snapshot import NodeState, Reservation, take_snapshot
from cloud_coordinator.placement.testing import a_node, a_request
from policy.guard.registry import make_guard
from policy.profile import RuntimeProfile
from policy.testing import a_device
from skerry.fence import Fence
from skerry.task import DataSpec
from skerry.testing import a_task

GUARD = make_guard()
SETTINGS = PlacementSettings(queue_depth=2)
TASK = a_request().task_id


def a_plan(*requests: Any) -> Plan:
    """The plan for n1, the only node there is."""
    wanted = requests or (a_request(),)
    return plan(wanted, take_snapshot([a_node("n1")]), SETTINGS, guard=GUARD, profile=RuntimeProfile())


def applied(
    planned: Plan, nodes: list[NodeState], reservations: tuple[Reservation, ...] = (), **fields: Any
) -> Applied:
    """What becomes of a plan in term 3, by a ledger that never placed anything, unless told otherwise."""
    given = {"guard": GUARD, "term": 3, "issued": {}, **fields}
    return apply_plan(planned, take_snapshot(nodes, reservations), SETTINGS, **given)


def test_a_placement_that_still_holds_is_fenced_and_keeps_its_decision() -> None:
    planned = a_plan()

    (placement,) = applied(planned, [a_node("n1")]).placements

    assert (placement.task_id, placement.node, placement.device) == (TASK, "n1", "cpu-1")
    assert placement.fence == Fence((3, 1))
    assert placement.decision == planned.placements[0].decision
    assert placement.memory_bytes == a_task().resources.memory_bytes


def test_the_number_goes_on_from_the_previous_placement_over_terms() -> None:
    (placement,) = applied(a_plan(), [a_node("n1")], issued={TASK: Fence((2, 16), 4)}).placements

    assert placement.fence == Fence((3, 17))


def test_a_nested_coordinator_numbers_below_the_placement_it_holds() -> None:
    planned = a_plan(a_request(under=(3, 17)))

    (placement,) = applied(planned, [a_node("n1")], term=1).placements

    assert placement.fence == Fence((3, 17, 1, 1))
    assert placement.fence.is_under(Fence((3, 17)))


def test_a_task_that_a_newer_term_placed_is_left_alone() -> None:
    (stale,) = applied(a_plan(), [a_node("n1")], issued={TASK: Fence((4, 1))}).stale

    assert (stale.reason, stale.is_settled) == ("a newer term has placed it", True)


def test_a_task_that_is_placed_already_is_not_placed_twice() -> None:
    planned = a_plan()
    held = Reservation(task_id=TASK, node="n1", device="cpu-1")
    twice = msgspec.structs.replace(planned, placements=planned.placements * 2)

    (stale,) = applied(planned, [a_node("n1")], (held,)).stale
    doubled = applied(twice, [a_node("n1")])

    assert (stale.reason, stale.is_settled) == ("it is placed already", True)
    assert (len(doubled.placements), len(doubled.stale)) == (1, 1)


@pytest.mark.parametrize(
    ("nodes", "reason"),
    [
        ([], "n1: it left the fleet"),
        ([a_node("n1", status="lost")], "n1: it is given up as lost"),
        ([a_node("n1", a_device("npu", "npu-1"))], "n1: device npu-1 has no executor command"),
        ([a_node("n1", a_device("cpu", "cpu-2"))], "n1: cpu-1 is gone"),
        (
            [a_node("n1", a_device("cpu", "cpu-1", usable=False, reason="hot"))],
            "n1: cpu-1 is not usable: hot",
        ),
        ([a_node("n1", memory_bytes=1 << 20)], "n1: needs 256 MiB, this node has 1 MiB"),
    ],
)
def test_what_the_fleet_has_outrun_is_given_back_with_the_reason(nodes: list[NodeState], reason: str) -> None:
    result = applied(a_plan(), nodes)

    assert result.placements == ()
    assert [(stale.reason, stale.is_settled) for stale in result.stale] == [(reason, False)]


def test_rules_are_asked_again() -> None:
    task = a_task(data=DataSpec(labels=("pii",), home_region="eu"))

    (stale,) = applied(a_plan(a_request(task=task)), [a_node("n1", region="us")]).stale

    assert stale.reason == "n1: data labelled pii may only be processed in eu, this node is in us"


def test_two_plans_on_one_snapshot_share_the_room_that_is_there() -> None:
    first, second = a_plan(a_request(1), a_request(2)), a_plan(a_request(3), a_request(4))
    one = applied(first, [a_node("n1")]).placements
    held = tuple(Reservation(task_id=p.task_id, node=p.node, device=p.device) for p in one)

    late = applied(second, [a_node("n1")], held)

    assert len(one) == 2
    assert late.placements == ()
    assert {stale.reason for stale in late.stale} == {
        "n1: cpu-1 has all the 2 tasks placed on it that it may have at once"
    }


def test_one_plan_does_not_take_more_than_the_room_that_is_left() -> None:
    planned = a_plan(a_request(1), a_request(2))
    taker = Reservation(task_id="f" * 32, node="n1", device="cpu-1")

    result = applied(planned, [a_node("n1")], (taker,))

    assert [p.task_id for p in result.placements] == [a_request(1).task_id]
    assert len(result.stale) == 1


def test_no_fence_is_issued_below_one_that_is_out() -> None:
    assert next_fence((), 3, Fence((3, 5), 2)) == Fence((3, 6))
    assert next_fence((), 2, Fence((3, 5))) is None
    assert next_fence((3, 1), 9, Fence((3, 2, 1, 1))) is None
    assert next_fence((3, 2), 1, Fence((3, 1, 8, 4))) == Fence((3, 2, 1, 5))
