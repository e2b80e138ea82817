"""The fleet at one moment, as placement sees it: immutable, ordered by name, with indices.

Owns what is known of each node and what has been promised on it. Must not know of the register or the ledger
that it is made from.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import msgspec

from policy.port import DeviceView, NodeView
from skerry.errors import PlacementError
from skerry.node import Device, NodeRecord


class Reservation(msgspec.Struct, frozen=True, kw_only=True):
    """One placement that is in force: room that is taken until the task ends or its lease does."""

    task_id: str
    node: str
    device: str
    memory_bytes: int = 0
    expected_s: float = 0.0  #: run time expected when it was placed, seconds


class NodeState(msgspec.Struct, frozen=True, kw_only=True):
    """A node with its last word on its load. device_load: seconds of work reserved, by device id."""

    record: NodeRecord
    device_load: Mapping[str, float] = {}
    #: Placed tasks that it said it has: their work is in device_load already.
    holds: frozenset[str] = frozenset()

    @property
    def name(self) -> str:
        """The node's name."""
        return self.record.name

    @property
    def devices(self) -> tuple[Device, ...]:
        """Its devices; none while it has not sent an inventory."""
        return self.record.inventory.devices if self.record.inventory else ()

    @property
    def memory_bytes(self) -> int:
        """Its memory as a whole; placement looks at what a node has, its agent at what is free now."""
        return self.record.inventory.memory_bytes if self.record.inventory else 0

    def view(self) -> NodeView:
        """Return the node as filters and rules see it."""
        inventory = self.record.inventory
        return NodeView(
            node=self.name,
            region=self.record.region,
            site=self.record.site,
            labels=inventory.labels if inventory else {},
            memory_bytes=self.memory_bytes,
            free_memory_bytes=self.memory_bytes,
            free_cpu_millicores=inventory.cpu_millicores if inventory else 0,
            devices=tuple(DeviceView(device=device) for device in self.devices),
        )


@dataclass(frozen=True)
class FleetSnapshot:
    """Every node, ordered by name, and every reservation.  Made by take_snapshot.  revision: the ledger's."""

    nodes: tuple[NodeState, ...]
    reservations: tuple[Reservation, ...] = ()
    revision: int = 0

    @cached_property
    def by_name(self) -> Mapping[str, NodeState]:
        """Nodes by name."""
        return {node.name: node for node in self.nodes}

    @cached_property
    def placed(self) -> Mapping[str, Reservation]:
        """Reservations by task id."""
        return {one.task_id: one for one in self.reservations}


def take_snapshot(
    nodes: Iterable[NodeState], reservations: Iterable[Reservation] = (), *, revision: int = 0
) -> FleetSnapshot:
    """Return the snapshot, whatever the order of what it is made from.

    Raises PlacementError when two nodes have one name or two reservations one task.
    """
    ordered = tuple(sorted(nodes, key=lambda node: node.name))
    held = tuple(sorted(reservations, key=lambda one: one.task_id))
    _refuse_twins("node", [node.name for node in ordered])
    _refuse_twins("reservation of task", [one.task_id for one in held])
    return FleetSnapshot(ordered, held, revision)


def _refuse_twins(what: str, names: list[str]) -> None:
    twins = [name for name, following in pairwise(names) if name == following]
    if twins:
        raise PlacementError(f"{what} {twins[0]} is in the snapshot twice")
