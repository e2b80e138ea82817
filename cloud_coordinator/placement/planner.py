"""One batch of requests against one snapshot: a plan, with a decision that explains each answer.

Owns the order, the choice and its words. Pure: the same requests and fleet give the same plan, in whatever
order they come. Bounded: by tasks and by (task, node) pairs, never by a clock. Must not know of fences.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import msgspec

from cloud_coordinator.placement import scorers
from cloud_coordinator.placement.filters import Feasible, class_of, excluded, feasible
from cloud_coordinator.placement.request import PlacementRequest, Plan, PlannedPlacement, Unplaced
from cloud_coordinator.placement.room import Bay, Room
from cloud_coordinator.placement.settings import PlacementSettings
from cloud_coordinator.placement.snapshot import FleetSnapshot, NodeState
from policy.port import Guard
from policy.profile import RuntimeProfile
from skerry.decision import Candidate, Decision, Verdict
from skerry.node import Device

METHOD = "coordinator:score"
#: Reasons named in the sentence of a refusal; the decision holds all.
NAMED_REASONS = 4


class _Option(msgspec.Struct, frozen=True):
    """One device of one node, with what does not change within a batch."""

    node: NodeState
    device: Device
    bay: Bay
    runtime_s: float
    locality: float


class _Class(msgspec.Struct, frozen=True):
    """What all requests of one class share: their options, and what stands against each node."""

    options: tuple[_Option, ...]
    found: Mapping[str, Feasible]


class _Scored(msgspec.Struct, frozen=True):
    option: _Option
    score: float
    expected_s: float


def plan(
    requests: Sequence[PlacementRequest],
    snapshot: FleetSnapshot,
    settings: PlacementSettings,
    *,
    guard: Guard,
    profile: RuntimeProfile,
    wall_s: float = 0.0,
) -> Plan:
    """Return where each task should run, highest priority first, then by order, then by id.

    profile: run times with the node's name as scope.  Nothing is overbooked within the plan.  Ties break on
    the node's name, then the device's id.
    """
    order = sorted(requests, key=lambda r: (-r.task.priority, r.order, r.task_id))
    limit = min(settings.batch_limit, max(1, settings.evaluation_limit // max(1, len(snapshot.nodes))))
    batch = _Batch(snapshot, settings, guard, profile, wall_s)
    answers = [batch.place(request) for request in order[:limit]]
    return Plan(
        revision=snapshot.revision,
        placements=tuple(answer for answer in answers if isinstance(answer, PlannedPlacement)),
        unplaced=tuple(answer for answer in answers if isinstance(answer, Unplaced)),
        deferred=tuple(request.task_id for request in order[limit:]),
    )


class _Batch:
    """The state of one call of plan: room left, and answers that requests of one class share."""

    def __init__(
        self,
        snapshot: FleetSnapshot,
        settings: PlacementSettings,
        guard: Guard,
        profile: RuntimeProfile,
        wall_s: float,
    ) -> None:
        self._snapshot, self._settings, self._guard, self._profile = snapshot, settings, guard, profile
        self._wall_s = wall_s
        self._room = Room(snapshot, settings)
        self._classes: dict[tuple[object, ...], _Class] = {}

    def place(self, request: PlacementRequest) -> PlannedPlacement | Unplaced:
        """Choose the best place and take its room, or say what stands against each node."""
        shared = self._class(request)
        scored = self._score([one for one in shared.options if self._is_open(request, one)])
        if not scored:
            return self._unplaced(request, shared)
        best = scored[0].option
        node, device = best.node.name, best.device.device_id
        self._room.take(node, device, request.task.resources.memory_bytes, best.runtime_s)
        decision = self._decision(request, scored)
        return PlannedPlacement(
            request=request, node=node, device=device, runtime_s=best.runtime_s, decision=decision
        )

    def _class(self, request: PlacementRequest) -> _Class:
        key = class_of(request)
        if key not in self._classes:
            found = [feasible(request.task, node, self._guard) for node in self._snapshot.nodes]
            options = tuple(self._option(request, one, d) for one in found for d in one.devices)
            self._classes[key] = _Class(options, {one.node.name: one for one in found})
        return self._classes[key]

    def _option(self, request: PlacementRequest, found: Feasible, device: Device) -> _Option:
        runtime_s = self._profile.expected_s(request.task, device, scope=found.node.name)
        bay = self._room.bay(found.node.name, device.device_id)
        return _Option(found.node, device, bay, runtime_s, scorers.locality(request, found.node.record))

    def _is_open(self, request: PlacementRequest, option: _Option) -> bool:
        name = option.node.name
        needs = request.task.resources.memory_bytes
        return name not in request.excluded and self._room.has(name, option.bay, needs)

    def _score(self, options: Sequence[_Option]) -> list[_Scored]:
        """The options from best to worst."""
        expected = [option.bay.wait_s + option.runtime_s for option in options]
        fastest_s = min(expected, default=0.0)
        scored = [
            _Scored(option, self._score_of(option, expected_s, fastest_s), expected_s)
            for option, expected_s in zip(options, expected, strict=True)
        ]
        scored.sort(key=lambda one: (-one.score, one.option.node.name, one.option.device.device_id))
        return scored

    def _score_of(self, option: _Option, expected_s: float, fastest_s: float) -> float:
        soon = scorers.completion(expected_s, fastest_s)
        room = scorers.spread(option.bay.free_share)
        return scorers.combined(self._settings, soon, option.locality, room)

    def _decision(self, request: PlacementRequest, scored: Sequence[_Scored]) -> Decision:
        best = scored[0].option
        return Decision(
            task_id=request.task_id,
            decided_by=METHOD,
            node=best.node.name,
            device=best.device.device_id,
            reason=_why(scored),
            candidates=tuple(_candidate(one) for one in scored[: self._settings.kept_candidates]),
            wall_s=self._wall_s,
        )

    def _unplaced(self, request: PlacementRequest, shared: _Class) -> Unplaced:
        reasons = {node.name: self._against(request, shared, node) for node in self._snapshot.nodes}
        decision = Decision(
            task_id=request.task_id,
            decided_by=METHOD,
            reason=_why_nowhere(reasons),
            candidates=tuple(_refused(self._snapshot.by_name[name], said) for name, said in reasons.items()),
            wall_s=self._wall_s,
        )
        can_wait = any(one.can_wait for name, one in shared.found.items() if name not in request.excluded)
        return Unplaced(request=request, decision=decision, reasons=reasons, can_wait=can_wait)

    def _against(self, request: PlacementRequest, shared: _Class, node: NodeState) -> tuple[Verdict, ...]:
        """What keeps the task off one node: its own refusal, else full devices, else filters and rules."""
        refused = excluded(request, node)
        if refused is not None:
            return (refused,)
        needs = request.task.resources.memory_bytes
        full = [self._room.refusal(node, o.device, needs) for o in shared.options if o.node is node]
        return tuple(full) or shared.found[node.name].against


def _candidate(one: _Scored) -> Candidate:
    return Candidate(
        node=one.option.node.name,
        device=one.option.device.device_id,
        device_class=one.option.device.device_class,
        score=one.score,
        expected_s=one.expected_s,
    )


def _refused(node: NodeState, verdicts: tuple[Verdict, ...]) -> Candidate:
    device = node.devices[0] if len(node.devices) == 1 else None
    return Candidate(
        node=node.name,
        device=device.device_id if device else f"{len(node.devices)} devices",
        device_class=device.device_class if device else "any",
        verdicts=verdicts,
    )


def _why(scored: Sequence[_Scored]) -> str:
    best = scored[0]
    name = f"{best.option.device.device_class} {best.option.device.device_id} on {best.option.node.name}"
    if len(scored) == 1:
        return f"{name} is the only place that can have it, expected in {best.expected_s:.3f} s"
    other = scored[1]
    second = f"{other.option.device.device_id} on {other.option.node.name}"
    return (
        f"{name} is the best of {len(scored)} places: score {best.score:.0f}, "
        f"expected in {best.expected_s:.3f} s, "
        f"against score {other.score:.0f}, {other.expected_s:.3f} s on {second}"
    )


def _why_nowhere(reasons: Mapping[str, tuple[Verdict, ...]]) -> str:
    if not reasons:
        return "no node of the fleet can run it: there are no nodes"
    counts = Counter(v.message or v.rule for said in reasons.values() for v in dict.fromkeys(said))
    ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    named = "; ".join(f"{message} ({count})" for message, count in ranked[:NAMED_REASONS])
    more = f"; and {len(ranked) - NAMED_REASONS} more reasons" if len(ranked) > NAMED_REASONS else ""
    return f"no node of the fleet can run it, {len(reasons)} were asked: {named}{more}"
