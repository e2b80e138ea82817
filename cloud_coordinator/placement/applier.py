"""The one place where a plan becomes promises: checked again on the present fleet, fenced, within room.

Owns the re-validation and the issue of fences. Pure: the caller writes what it returns in one transaction
with the snapshot it was checked against, or throws it away. Must not know of scores.
"""

from __future__ import annotations

from collections.abc import Mapping

from cloud_coordinator.placement.filters import excluded, feasible
from cloud_coordinator.placement.request import (
    Applied,
    AppliedPlacement,
    Plan,
    PlannedPlacement,
    StalePlacement,
)
from cloud_coordinator.placement.room import Room
from cloud_coordinator.placement.settings import PlacementSettings
from cloud_coordinator.placement.snapshot import FleetSnapshot
from policy.port import Guard
from skerry.fence import Fence


def apply_plan(
    plan: Plan,
    fresh: FleetSnapshot,
    settings: PlacementSettings,
    *,
    guard: Guard,
    term: int,
    issued: Mapping[str, Fence],
) -> Applied:
    """Return the placements that still hold, fenced, and the stale ones with the reason.

    fresh: the fleet now.  term: this coordinator's.  issued: the highest fence ever issued for each task.
    """
    applier = _Applier(fresh, settings, guard, term, dict(issued))
    answers = [applier.apply(planned) for planned in plan.placements]
    return Applied(
        placements=tuple(answer for answer in answers if isinstance(answer, AppliedPlacement)),
        stale=tuple(answer for answer in answers if isinstance(answer, StalePlacement)),
    )


def next_fence(under: tuple[int, ...], term: int, previous: Fence | None) -> Fence | None:
    """Return the fence of a task's next placement: its number is the previous one's plus one.

    None when it would not be above the previous fence: another term has placed the task since.
    """
    base = len(under)
    number = previous.path[base + 1] + 1 if previous is not None and len(previous.path) > base + 1 else 1
    fence = Fence((*under, term, number))
    is_above = previous is None or Fence(previous.path[: base + 2]) < fence
    return fence if is_above else None


class _Applier:
    """The state of one call of apply_plan."""

    def __init__(
        self,
        fresh: FleetSnapshot,
        settings: PlacementSettings,
        guard: Guard,
        term: int,
        issued: dict[str, Fence],
    ) -> None:
        self._fresh, self._guard, self._term, self._issued = fresh, guard, term, issued
        self._room = Room(fresh, settings)
        self._taken = set(fresh.placed)

    def apply(self, planned: PlannedPlacement) -> AppliedPlacement | StalePlacement:
        request = planned.request
        if request.task_id in self._taken:
            return StalePlacement(request=request, reason="it is placed already", is_settled=True)
        against = self._against(planned)
        if against:
            return StalePlacement(request=request, reason=f"{planned.node}: {against}")
        fence = next_fence(request.under, self._term, self._issued.get(request.task_id))
        if fence is None:
            return StalePlacement(request=request, reason="a newer term has placed it", is_settled=True)
        return self._take(planned, fence)

    def _against(self, planned: PlannedPlacement) -> str:
        """What the fleet says to this placement now; empty when it still holds."""
        node = self._fresh.by_name.get(planned.node)
        if node is None:
            return "it left the fleet"
        refused = excluded(planned.request, node)
        if refused is not None:
            return refused.message
        found = feasible(planned.request.task, node, self._guard)
        device = next((d for d in found.devices if d.device_id == planned.device), None)
        if device is None:
            return "; ".join(v.message for v in found.against) or f"{planned.device} is gone"
        needs = planned.request.task.resources.memory_bytes
        bay = self._room.bay(node.name, device.device_id)
        if not self._room.has(node.name, bay, needs):
            return self._room.refusal(node, device, needs).message
        return ""

    def _take(self, planned: PlannedPlacement, fence: Fence) -> AppliedPlacement:
        request, needs = planned.request, planned.request.task.resources.memory_bytes
        self._room.take(planned.node, planned.device, needs, planned.runtime_s)
        self._taken.add(request.task_id)
        self._issued[request.task_id] = fence
        return AppliedPlacement(
            task_id=request.task_id,
            node=planned.node,
            fence=fence,
            decision=planned.decision,
            device=planned.device,
            memory_bytes=needs,
            expected_s=planned.runtime_s,
        )
