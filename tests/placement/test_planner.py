"""One batch against one fleet: where tasks go, in which order, and what is said where they cannot."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from cloud_coordinator.placement.planner import plan
from cloud_coordinator.placement.request import PlacementRequest, Plan
from cloud_coordinator.placement.settings import PlacementSettings
from cloud_coordinator.placement.snapshot import NodeState, Reservation, take_snapshot
from cloud_coordinator.placement.testing import a_node, a_request
from policy.guard.registry import make_guard
from policy.profile import RuntimeProfile
from policy.testing import a_device, a_model_task
from skerry.decision import explain
from skerry.errors import PlacementError, SettingsError
from skerry.settings import load_settings
from skerry.task import Constraints, DataSpec, Resources
from skerry.testing import a_task

GUARD = make_guard()
NPU = a_device("npu", "npu-1", speed=5.0)


def planned(
    requests: list[PlacementRequest],
    nodes: list[NodeState],
    reservations: list[Reservation] | None = None,
    **knobs: Any,
) -> Plan:
    """The plan for an unmeasured fleet under the shipped rules."""
    snapshot = take_snapshot(nodes, reservations or [], revision=7)
    return plan(requests, snapshot, PlacementSettings(**knobs), guard=GUARD, profile=RuntimeProfile())


def reasons(result: Plan) -> dict[str, list[str]]:
    """What is said of each node, for the one task that could not be placed."""
    (unplaced,) = result.unplaced
    return {name: [verdict.message for verdict in said] for name, said in unplaced.reasons.items()}


def test_a_task_goes_to_the_node_that_can_run_it_and_the_decision_says_why() -> None:
    task = a_model_task(resources=Resources(accelerator="npu"))

    result = planned([a_request(task=task)], [a_node("n1"), a_node("n2", NPU, region="us")])

    (placement,) = result.placements
    assert (placement.node, placement.device, result.revision) == ("n2", "npu-1", 7)
    assert placement.decision.decided_by == "coordinator:score"
    assert placement.decision.reason == (
        "npu npu-1 on n2 is the only place that can have it, expected in 0.020 s"
    )


def test_a_better_place_is_compared_with_the_next_best_one() -> None:
    result = planned([a_request(task=a_model_task())], [a_node("n1"), a_node("n2", NPU)])

    text = explain(result.placements[0].decision)
    assert "npu npu-1 on n2 is the best of 2 places: score 100, expected in 0.020 s" in text
    assert "against score 60, 0.100 s on cpu-1 on n1" in text


def test_a_task_without_data_to_move_may_leave_a_slow_home_and_one_with_much_data_stays() -> None:
    nodes = [a_node("home-side", region="eu"), a_node("far", NPU, region="us")]

    light = planned([a_request(task=a_model_task())], nodes)
    heavy = planned(
        [a_request(task=a_model_task(data=DataSpec(size_bytes=1 << 30)))], nodes, weight_locality=5
    )

    assert light.placements[0].node == "far"
    assert heavy.placements[0].node == "home-side"


def test_equal_places_go_by_name_and_one_batch_spreads_over_them() -> None:
    result = planned([a_request(i) for i in range(4)], [a_node("b"), a_node("a")])

    assert [p.node for p in result.placements] == ["a", "b", "a", "b"]


def test_high_priority_goes_first_then_order_then_id() -> None:
    requests = [
        a_request(1, a_task(priority=2), order=0),
        a_request(2, a_task(priority=9), order=5),
        a_request(3, a_task(priority=9), order=4),
    ]

    result = planned(requests, [a_node("only")], queue_depth=2)

    assert [int(p.request.task_id, 16) for p in result.placements] == [3, 2]
    assert [int(u.request.task_id, 16) for u in result.unplaced] == [1]


def test_waiting_work_counts_and_what_a_node_holds_is_not_counted_twice() -> None:
    busy = a_node("a")
    reservation = Reservation(task_id="f" * 32, node="a", device="cpu-1", expected_s=30.0)
    told = msgspec.structs.replace(busy, holds=frozenset({"f" * 32}), device_load={"cpu-1": 30.0})

    (unheard,) = planned([a_request()], [busy], [reservation]).placements
    (heard,) = planned([a_request()], [told], [reservation]).placements

    assert unheard.decision.candidates[0].expected_s == pytest.approx(31.0)
    assert heard.decision.candidates[0].expected_s == pytest.approx(31.0)


@pytest.mark.parametrize(
    ("node", "message"),
    [
        (a_node("x", status="lost"), "it is given up as lost"),
        (a_node("x", status="stale"), "it has not been heard of for a while"),
        (a_node("x", status="enrolled"), "it has never been online"),
        (a_node("x", status="quarantined"), "it is in quarantine"),
        (a_node("x", inventory=None), "it has not said what devices it has"),
        (a_node("x", NPU), "device npu-1 has no executor command"),
        (a_node("x", memory_bytes=1 << 20), "needs 256 MiB, this node has 1 MiB"),
        (a_node("x", region="us"), "may only run on region eu, this is us"),
    ],
)
def test_a_task_that_fits_nowhere_hears_the_reason_of_each_node(node: NodeState, message: str) -> None:
    task = a_task(constraints=Constraints(regions=("eu",)))

    result = planned([a_request(task=task)], [node, a_node("y", region="jp")])

    assert message in reasons(result)["x"]
    assert reasons(result)["y"] == ["may only run on region eu, this is jp"]
    assert "2 were asked" in result.unplaced[0].decision.reason
    assert len(result.unplaced[0].decision.candidates) == 2


def test_a_stale_node_gets_what_is_pinned_to_it_and_nothing_else() -> None:
    pinned = a_task(constraints=Constraints(nodes=("away",)))

    result = planned([a_request(1, pinned), a_request(2)], [a_node("away", status="stale")])

    assert [p.request.task_id for p in result.placements] == [a_request(1).task_id]
    assert len(result.unplaced) == 1


def test_a_node_that_refused_a_task_is_not_asked_again() -> None:
    request = a_request(excluded={"a": "its npu is lost"})

    assert planned([request], [a_node("a"), a_node("b")]).placements[0].node == "b"
    assert reasons(planned([request], [a_node("a")])) == {"a": ["it does not take it: its npu is lost"]}


def test_personal_data_stay_in_their_home_region_even_when_that_is_full_or_down() -> None:
    task = a_task(data=DataSpec(labels=("pii",), home_region="eu"))

    result = planned([a_request(task=task)], [a_node("eu-1", status="lost"), a_node("us-1", region="us")])

    assert reasons(result)["us-1"] == ["data labelled pii may only be processed in eu, this node is in us"]
    assert result.unplaced[0].can_wait


@pytest.mark.parametrize(
    ("node", "can_wait"),
    [
        (a_node("x", status="lost"), True),
        (a_node("x", a_device("cpu", "cpu-1", usable=False)), True),
        (a_node("x", NPU, a_device("cpu", "cpu-1", usable=False)), True),
        (a_node("x", NPU), False),
        (a_node("x", NPU, status="lost"), False),
        (a_node("x", status="quarantined"), False),
    ],
)
def test_whether_waiting_can_help_is_told(node: NodeState, can_wait: bool) -> None:
    (unplaced,) = planned([a_request()], [node]).unplaced

    assert unplaced.can_wait is can_wait


def test_a_full_node_says_what_is_full() -> None:
    by_places = planned([a_request(i) for i in range(3)], [a_node("a")], queue_depth=2)
    big = a_task(resources=Resources(memory_bytes=3 << 30))
    by_memory = planned([a_request(i, big) for i in range(2)], [a_node("a")], memory_overcommit=1)

    assert reasons(by_places)["a"] == ["cpu-1 has all the 2 tasks placed on it that it may have at once"]
    assert reasons(by_memory)["a"] == ["needs 3.0 GiB, only 1.0 GiB can still be promised"]
    assert by_places.unplaced[0].can_wait


def test_an_empty_fleet_is_said_to_be_empty() -> None:
    (unplaced,) = planned([a_request()], []).unplaced

    assert unplaced.decision.reason == "no node of the fleet can run it: there are no nodes"
    assert not unplaced.can_wait


def test_a_batch_is_bounded_and_the_rest_is_deferred_in_order() -> None:
    requests = [a_request(i) for i in range(5)]

    by_tasks = planned(requests, [a_node("a")], batch_limit=3)
    by_pairs = planned(requests, [a_node("a"), a_node("b")], evaluation_limit=4)

    assert by_tasks.deferred == tuple(r.task_id for r in requests[3:])
    assert by_pairs.deferred == tuple(r.task_id for r in requests[2:])


def test_the_record_of_a_placement_is_bounded_too() -> None:
    (placement,) = planned([a_request()], [a_node(f"n{i}") for i in range(30)], kept_candidates=5).placements

    assert len(placement.decision.candidates) == 5
    assert "best of 30 places" in placement.decision.reason


def test_measured_run_times_of_a_node_decide() -> None:
    profile = RuntimeProfile()
    fast, slow = a_node("slow-looking"), a_node("a-fast-looking")
    for node, runtime_s in ((fast, 0.1), (slow, 3.0)):
        profile.observe("task", node.devices[0], runtime_s, scope=node.name)

    snapshot = take_snapshot([fast, slow])
    result = plan([a_request()], snapshot, PlacementSettings(), guard=GUARD, profile=profile)

    assert result.placements[0].node == "slow-looking"


def test_a_snapshot_with_twins_is_refused() -> None:
    twin = Reservation(task_id="a", node="n1", device="cpu-1")

    with pytest.raises(PlacementError, match="node n1 is in the snapshot twice"):
        take_snapshot([a_node("n1"), a_node("n1")])
    with pytest.raises(PlacementError, match="reservation of task a is in the snapshot twice"):
        take_snapshot([], [twin, twin])


def test_settings_out_of_bounds_are_refused() -> None:
    with pytest.raises(SettingsError, match="queue_depth"):
        load_settings(PlacementSettings, flags={"queue_depth": 0})
