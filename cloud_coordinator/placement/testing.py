"""The testing kit that ships: builders of nodes and requests as placement sees them."""

from __future__ import annotations

from typing import Any

from cloud_coordinator.placement.request import PlacementRequest
from cloud_coordinator.placement.snapshot import NodeState
from skerry.node import Device, Inventory, NodeRecord
from skerry.task import CommandSpec, TaskSpec


def a_node(name: str = "n1", *devices: Device, memory_bytes: int = 4 << 30, **fields: Any) -> NodeState:
    """Return an online node of region eu with one cpu, unless told otherwise; fields are NodeRecord's."""
    own = devices or (
        Device(device_id="cpu-1", device_class="cpu", name="a cpu", executors=("onnx", "command")),
    )
    inventory = Inventory(devices=own, cpu_millicores=4000, memory_bytes=memory_bytes)
    defaults = {"fleet": "test", "region": "eu", "status": "online", "inventory": inventory}
    return NodeState(record=NodeRecord(**{"name": name, **defaults, **fields}))


def a_request(number: int = 1, task: TaskSpec | None = None, **fields: Any) -> PlacementRequest:
    """Return request number so-and-so, for a small command of a node in eu; fields are PlacementRequest's."""
    wanted = task or TaskSpec(spec=CommandSpec(argv=("true",)))
    defaults = {"task_id": f"{number:032x}", "order": number, "home_node": "home", "home_region": "eu"}
    return PlacementRequest(**{"task": wanted, **defaults, **fields})
