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

_Key = tuple[str, str]


class Room:
    """Free places by (node, device), free memory by node, seconds of waiting work by (node, device)."""

    def __init__(self, snapshot: FleetSnapshot, settings: PlacementSettings) -> None:
        """Begin with what the snapshot's reservations leave."""
        self._places: dict[_Key, int] = {}
        self._limits: dict[_Key, int] = {}
        self._slots: dict[_Key, int] = {}
        self._memory: dict[str, int] = {}
        self._backlog_s: dict[_Key, float] = {}
        for node in snapshot.nodes:
            self._open(node, settings)
        for one in snapshot.reservations:
            holder = snapshot.by_name.get(one.node)
            is_counted = holder is not None and one.task_id in holder.holds
            self.take(one.node, one.device, one.memory_bytes, 0.0 if is_counted else one.expected_s)

    def _open(self, node: NodeState, settings: PlacementSettings) -> None:
        self._memory[node.name] = int(node.memory_bytes * settings.memory_overcommit)
        for device in node.devices:
            key = (node.name, device.device_id)
            self._slots[key] = max(device.slots, 1)
            self._limits[key] = self._places[key] = self._slots[key] * settings.queue_depth
            self._backlog_s[key] = max(node.device_load.get(device.device_id, 0.0), 0.0)

    def take(self, node: str, device: str, memory_bytes: int, runtime_s: float) -> None:
        """Count one task; on a node or device that is gone it takes nothing."""
        key = (node, device)
        if node in self._memory:
            self._memory[node] -= memory_bytes
        if key in self._places:
            self._places[key] -= 1
            self._backlog_s[key] += runtime_s

    def has(self, node: str, device: str, memory_bytes: int) -> bool:
        """Decide whether one more task fits."""
        return self._places.get((node, device), 0) > 0 and self._memory.get(node, 0) >= memory_bytes

    def refusal(self, node: NodeState, device: Device, memory_bytes: int) -> Verdict:
        """Say why one more task does not fit."""
        limit = self._limits[node.name, device.device_id]
        if self._places[node.name, device.device_id] <= 0:
            message = f"{device.device_id} has all the {limit} tasks placed on it that it may have at once"
        else:
            left = in_units(max(self._memory[node.name], 0))
            message = f"needs {in_units(memory_bytes)}, only {left} can still be promised"
        return Verdict(rule="capacity", allowed=False, message=message)

    def wait_s(self, node: str, device: str) -> float:
        """Return the seconds before a slot of the device is free, waiting work shared among its slots."""
        return self._backlog_s[node, device] / self._slots[node, device]

    def free_share(self, node: str, device: str) -> float:
        """Return the share of the device's places that is free, 0 to 1."""
        return max(self._places[node, device], 0) / self._limits[node, device]
