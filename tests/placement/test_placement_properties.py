"""What holds for every fleet and batch: no overbooking, the same plan again, residency, growing fences."""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from cloud_coordinator.placement.applier import apply_plan, next_fence
from cloud_coordinator.placement.planner import plan
from cloud_coordinator.placement.request import PlacementRequest, Plan
from cloud_coordinator.placement.settings import PlacementSettings
from cloud_coordinator.placement.snapshot import FleetSnapshot, NodeState, Reservation, take_snapshot
from cloud_coordinator.placement.testing import a_node, a_request
from policy.guard.registry import make_guard
from policy.profile import RuntimeProfile
from policy.testing import a_device
from skerry.fence import Fence
from skerry.task import CommandSpec, Constraints, DataSpec, OnnxSpec, Resources, TaskSpec

GUARD = make_guard()
REGIONS = ("eu", "us", "jp")
GIB = 1 << 30
bounded = settings(max_examples=60, derandomize=True, deadline=None)


@st.composite
def devices(draw: st.DrawFn) -> list[Any]:
    """One to three devices of one node."""
    kinds = draw(st.lists(st.sampled_from(["cpu", "cpu", "npu", "tpu"]), min_size=1, max_size=3))
    return [
        a_device(
            kind,
            f"{kind}-{i}",
            slots=draw(st.integers(1, 2)),
            usable=draw(st.integers(0, 5)) > 0,
            speed=draw(st.sampled_from([1.0, 3.0])),
        )
        for i, kind in enumerate(kinds)
    ]


@st.composite
def nodes(draw: st.DrawFn, limit: int = 5) -> list[NodeState]:
    """A fleet, mostly online; names repeat from draw to draw, so that two draws are one fleet over time."""
    count = draw(st.integers(0, limit))
    return [
        a_node(
            f"n{i}",
            *draw(devices()),
            memory_bytes=draw(st.integers(1, 4)) * GIB,
            region=draw(st.sampled_from(REGIONS)),
            status=draw(st.sampled_from(["online"] * 6 + ["stale", "lost", "quarantined", "enrolled"])),
        )
        for i in range(count)
    ]


@st.composite
def tasks(draw: st.DrawFn) -> TaskSpec:
    """Models and commands, some of them with personal data, some pinned."""
    is_pii = draw(st.booleans())
    labels = (draw(st.sampled_from(["pii", "PII"])),) if is_pii else ()
    spec = draw(
        st.sampled_from([CommandSpec(argv=("true",)), OnnxSpec(model=f"sha256:{'0' * 64}", inputs={})])
    )
    return TaskSpec(
        spec=spec,
        kind=draw(st.sampled_from(["a", "b"])),
        priority=draw(st.integers(0, 9)),
        resources=Resources(
            accelerator=draw(st.sampled_from(["none", "any", "any", "npu", "tpu"])),
            memory_bytes=draw(st.sampled_from([GIB // 4, GIB, 3 * GIB])),
        ),
        data=DataSpec(labels=labels, home_region=draw(st.sampled_from([*REGIONS, None]))),
        constraints=Constraints(regions=draw(st.sampled_from([(), (), ("eu",), ("us", "jp")]))),
    )


@st.composite
def requests(draw: st.DrawFn) -> list[PlacementRequest]:
    """Up to 14 requests with distinct ids."""
    wanted = draw(st.lists(tasks(), max_size=14))
    excluded = st.dictionaries(st.sampled_from(["n0", "n1"]), st.just("refused"), max_size=1)
    return [a_request(i, task, excluded=draw(excluded)) for i, task in enumerate(wanted, 1)]


@st.composite
def crowds(draw: st.DrawFn) -> list[PlacementRequest]:
    """Many requests that nearly every node can have, half of them with personal data."""
    pii = DataSpec(labels=("pii",), home_region="eu")
    plain, personal = (TaskSpec(spec=CommandSpec(argv=("true",)), data=data) for data in (DataSpec(), pii))
    wanted = draw(st.lists(st.sampled_from([plain, personal]), min_size=4, max_size=14))
    return [a_request(i, task) for i, task in enumerate(wanted, 1)]


@st.composite
def fleets(draw: st.DrawFn) -> FleetSnapshot:
    """Nodes with reservations, some on nodes and devices that are gone."""
    found = draw(nodes())
    count = draw(st.integers(0, 6))
    held = [
        Reservation(
            task_id=f"{1000 + i:032x}",
            node=draw(st.sampled_from(["n0", "n1", "n2", "gone"])),
            device=draw(st.sampled_from(["cpu-0", "npu-0", "npu-1"])),
            memory_bytes=draw(st.sampled_from([GIB // 4, GIB])),
            expected_s=draw(st.floats(0, 50)),
        )
        for i in range(count)
    ]
    return take_snapshot(found, held)


@st.composite
def fleets_that_change(draw: st.DrawFn) -> tuple[FleetSnapshot, FleetSnapshot]:
    """A fleet, and the same one a little later: nodes gone or moved, devices smaller, room taken."""
    fleet = draw(fleets())
    later = [_changed(draw, node) for node in fleet.nodes if draw(st.integers(0, 7)) > 0]
    devices = [(node.name, device.device_id) for node in fleet.nodes for device in node.devices]
    takers = draw(st.lists(st.sampled_from(devices), max_size=8)) if devices else []
    held = [
        Reservation(task_id=f"{2000 + i:032x}", node=node, device=device, memory_bytes=GIB // 4)
        for i, (node, device) in enumerate(takers)
    ]
    return fleet, take_snapshot(later, [*fleet.reservations, *held])


def _changed(draw: st.DrawFn, node: NodeState) -> NodeState:
    inventory = node.record.inventory
    assert inventory is not None
    smaller = tuple(msgspec.structs.replace(device, slots=1) for device in inventory.devices)
    region = node.record.region if draw(st.booleans()) else draw(st.sampled_from(REGIONS))
    less = draw(st.sampled_from([inventory, msgspec.structs.replace(inventory, devices=smaller)]))
    return NodeState(record=msgspec.structs.replace(node.record, inventory=less, region=region))


knobs = st.builds(
    PlacementSettings,
    queue_depth=st.integers(1, 3),
    memory_overcommit=st.sampled_from([1.0, 2.0]),
    weight_completion=st.sampled_from([0.0, 3.0]),
    batch_limit=st.sampled_from([3, 500]),
)


def planned(wanted: list[PlacementRequest], fleet: FleetSnapshot, limits: PlacementSettings) -> Plan:
    """The plan of an unmeasured fleet under the shipped rules."""
    return plan(wanted, fleet, limits, guard=GUARD, profile=RuntimeProfile())


def assert_within_room(fleet: FleetSnapshot, placements: Any, limits: PlacementSettings) -> None:
    """Count from nothing what stands on each device and node that got something, and compare with its limit.

    What was reserved before is counted and not judged: a node may have shrunk since.
    """
    needs = [(p.node, p.device, _memory(p)) for p in placements]
    held = [(r.node, r.device, r.memory_bytes) for r in fleet.reservations]
    on_device = Counter((node, device) for node, device, _ in needs + held)
    on_node: Counter[str] = Counter()
    for node, _, memory in needs + held:
        on_node[node] += memory
    for name, device_id, _ in needs:
        node = fleet.by_name[name]
        (device,) = (d for d in node.devices if d.device_id == device_id)
        assert on_device[name, device_id] <= device.slots * limits.queue_depth
        assert on_node[name] <= node.memory_bytes * limits.memory_overcommit


def _memory(placement: Any) -> int:
    request = getattr(placement, "request", None)
    return int(placement.memory_bytes if request is None else request.task.resources.memory_bytes)


@bounded
@given(requests(), fleets(), knobs)
def test_a_plan_never_exceeds_capacity_and_answers_every_request(
    wanted: list[PlacementRequest], fleet: FleetSnapshot, limits: PlacementSettings
) -> None:
    result = planned(wanted, fleet, limits)

    assert_within_room(fleet, result.placements, limits)
    answered = [p.request.task_id for p in (*result.placements, *result.unplaced)] + list(result.deferred)
    assert sorted(answered) == sorted(r.task_id for r in wanted)


@bounded
@given(requests(), fleets(), knobs, st.randoms(use_true_random=False))
def test_the_same_fleet_and_requests_in_any_order_give_the_same_plan(
    wanted: list[PlacementRequest], fleet: FleetSnapshot, limits: PlacementSettings, random: Any
) -> None:
    shuffled_nodes, shuffled_held = list(fleet.nodes), list(fleet.reservations)
    shuffled = list(wanted)
    for items in (shuffled_nodes, shuffled_held, shuffled):
        random.shuffle(items)

    again = planned(shuffled, take_snapshot(shuffled_nodes, shuffled_held), limits)

    assert again == planned(wanted, fleet, limits)


@bounded
@given(requests(), fleets(), knobs)
def test_a_task_without_a_place_has_a_reason_for_each_node(
    wanted: list[PlacementRequest], fleet: FleetSnapshot, limits: PlacementSettings
) -> None:
    for unplaced in planned(wanted, fleet, limits).unplaced:
        assert set(unplaced.reasons) == {node.name for node in fleet.nodes}
        assert all(v.message and not v.allowed for said in unplaced.reasons.values() for v in said)
        assert all(unplaced.reasons.values())
        assert unplaced.decision.node is None
        assert unplaced.decision.reason


@bounded
@given(requests() | crowds(), fleets_that_change(), knobs)
def test_personal_data_are_never_placed_outside_their_home_region(
    wanted: list[PlacementRequest], fleets: tuple[FleetSnapshot, FleetSnapshot], limits: PlacementSettings
) -> None:
    fleet, later = fleets
    result = planned(wanted, fleet, limits)
    applied = apply_plan(result, later, limits, guard=GUARD, term=1, issued={})

    data = {r.task_id: r.task.data for r in wanted}
    for where, task_id, node in [
        *((fleet, p.request.task_id, p.node) for p in result.placements),
        *((later, p.task_id, p.node) for p in applied.placements),
    ]:
        if data[task_id].labels:
            assert where.by_name[node].record.region == data[task_id].home_region


@bounded
@given(requests() | crowds(), fleets_that_change(), knobs)
def test_applying_against_a_fleet_that_changed_never_overbooks_and_loses_no_request(
    wanted: list[PlacementRequest], fleets: tuple[FleetSnapshot, FleetSnapshot], limits: PlacementSettings
) -> None:
    fleet, later = fleets
    result = planned(wanted, fleet, limits)

    applied = apply_plan(result, later, limits, guard=GUARD, term=1, issued={})

    assert_within_room(later, applied.placements, limits)
    answered = [p.task_id for p in applied.placements] + [s.request.task_id for s in applied.stale]
    assert sorted(answered) == sorted(p.request.task_id for p in result.placements)
    assert all(stale.reason for stale in applied.stale)


@bounded
@given(requests(), fleets(), knobs)
def test_a_plan_holds_as_a_whole_while_the_fleet_stays_as_it_was(
    wanted: list[PlacementRequest], fleet: FleetSnapshot, limits: PlacementSettings
) -> None:
    result = planned(wanted, fleet, limits)

    applied = apply_plan(result, fleet, limits, guard=GUARD, term=1, issued={})

    assert applied.stale == ()
    assert len(applied.placements) == len(result.placements)


@bounded
@given(st.lists(st.tuples(st.integers(0, 2), nodes(3)), min_size=1, max_size=6))
def test_fences_of_one_task_grow_with_every_placement_over_terms_and_fleets(
    steps: list[tuple[int, list[NodeState]]],
) -> None:
    limits, issued, numbers, term = PlacementSettings(), {}, [], 1
    request = a_request()

    for new_terms, found in steps:
        term += new_terms
        fleet = take_snapshot(found)
        applied = apply_plan(
            planned([request], fleet, limits), fleet, limits, guard=GUARD, term=term, issued=issued
        )
        for placement in applied.placements:
            assert placement.task_id not in issued or issued[placement.task_id] < placement.fence
            issued[placement.task_id] = placement.fence
            numbers.append(placement.fence.path)

    assert [path[-1] for path in numbers] == list(range(1, len(numbers) + 1))


paths = st.lists(st.integers(0, 3), max_size=4).map(tuple)


@settings(max_examples=300, derandomize=True, deadline=None)
@given(paths, st.integers(0, 3), st.none() | st.builds(Fence, paths, st.integers(0, 9)))
def test_a_next_fence_is_above_every_attempt_under_the_previous_one_or_is_not_issued(
    under: tuple[int, ...], term: int, previous: Fence | None
) -> None:
    fence = next_fence(under, term, previous)

    if previous is None:
        assert fence == Fence((*under, term, 1))
    elif fence is not None:
        assert previous < fence
        assert previous.with_attempt(10**6) < fence
        assert fence.path[: len(under)] == under
