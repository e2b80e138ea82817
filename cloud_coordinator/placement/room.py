"""How much more each device may be given. Owns the count of places, memory and waiting work inside one batch.

The planner and the applier each have their own, made from the snapshot they work on: what one batch takes is
taken at once, so a batch cannot overbook. Must not know of tasks beyond what they take.
"""

from __future__ import annotations

from cloud_coordinator.placement.settings import PlacementSettings
from cloud_coordinator.placement.snapshot import FleetSnapshot, NodeState
from policy.filters import in_units
from skerry.decision import Verdict
from skerry.node import Device


class Bay:
    """The room on one device. Mutable: one batch counts down in it."""

    __slots__ = ("backlog_s", "limit", "places", "slots")

    def __init__(self, slots: int, limit: int, backlog_s: float) -> None:
        """slots: attempts at once.  limit: tasks placed on it at once.  backlog_s: waiting work, seconds."""
        self.slots, self.limit, self.places, self.backlog_s = slots, limit, limit, backlog_s

    @property
    def wait_s(self) -> float:
        """Seconds before a slot is free, the waiting work shared among the slots."""
        return self.backlog_s / self.slots

    @property
    def free_share(self) -> float:
        """The share of the places that is free, 0 to 1."""
        return max(self.places, 0) / self.limit


class Room:
    """The bays by (node, device), and what memory may still be promised, by node."""

    def __init__(self, snapshot: FleetSnapshot, settings: PlacementSettings) -> None:
        """Begin with what the snapshot's reservations leave."""
        self._bays: dict[tuple[str, str], Bay] = {}
        self._memory: dict[str, int] = {}
        for node in snapshot.nodes:
            self._open(node, settings)
        for one in snapshot.reservations:
            holder = snapshot.by_name.get(one.node)
            is_counted = holder is not None and one.task_id in holder.holds
            self.take(one.node, one.device, one.memory_bytes, 0.0 if is_counted else one.expected_s)

    def _open(self, node: NodeState, settings: PlacementSettings) -> None:
        self._memory[node.name] = int(node.memory_bytes * settings.memory_overcommit)
        for device in node.devices:
            slots = max(device.slots, 1)
            backlog_s = max(node.device_load.get(device.device_id, 0.0), 0.0)
            self._bays[node.name, device.device_id] = Bay(slots, slots * settings.queue_depth, backlog_s)

    def bay(self, node: str, device: str) -> Bay:
        """Return the room on a device of the snapshot."""
        return self._bays[node, device]

    def take(self, node: str, device: str, memory_bytes: int, runtime_s: float) -> None:
        """Count one task; on a node or device that is gone it takes nothing."""
        if node in self._memory:
            self._memory[node] -= memory_bytes
        bay = self._bays.get((node, device))
        if bay is not None:
            bay.places -= 1
            bay.backlog_s += runtime_s

    def has(self, node: str, bay: Bay, memory_bytes: int) -> bool:
        """Decide whether one more task fits."""
        return bay.places > 0 and self._memory[node] >= memory_bytes

    def refusal(self, node: NodeState, device: Device, memory_bytes: int) -> Verdict:
        """Say why one more task does not fit."""
        bay = self._bays[node.name, device.device_id]
        if bay.places <= 0:
            message = (
                f"{device.device_id} has all the {bay.limit} tasks placed on it that it may have at once"
            )
        else:
            left = in_units(max(self._memory[node.name], 0))
            message = f"needs {in_units(memory_bytes)}, only {left} can still be promised"
        return Verdict(rule="capacity", allowed=False, message=message)
