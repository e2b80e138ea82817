"""The testing kit that ships: builders of devices and nodes as decisions see them, and rules from a text."""

from __future__ import annotations

from typing import Any

from policy.guard.rego import RegoGuard
from policy.guard.sources import RuleSet
from policy.port import DeviceView, NodeView
from skerry.node import Device, DeviceClass
from skerry.task import OnnxSpec, TaskSpec


def a_device(device_class: DeviceClass = "cpu", device_id: str = "", **fields: Any) -> Device:
    """Return a device that runs models, and commands too when it is a cpu; fields override Device's."""
    executors = ("onnx", "command") if device_class == "cpu" else ("onnx",)
    defaults = {"device_id": device_id or f"{device_class}-1", "name": "a board", "executors": executors}
    return Device(**{**defaults, "device_class": device_class, **fields})


def a_view(*devices: Device | DeviceView, **fields: Any) -> NodeView:
    """Return node n1 in region eu with 4 GiB and these devices, idle unless given as views."""
    views = tuple(d if isinstance(d, DeviceView) else DeviceView(device=d) for d in devices)
    memory = {"memory_bytes": 4 << 30, "free_memory_bytes": 4 << 30}
    return NodeView(**{"node": "n1", "region": "eu", "devices": views, **memory, **fields})


def a_model_task(**fields: Any) -> TaskSpec:
    """Return one inference of some model; fields override TaskSpec's."""
    return TaskSpec(**{"spec": OnnxSpec(model=f"sha256:{'0' * 64}", inputs={}), "kind": "detect", **fields})


def a_guard(body: str, data: dict[str, Any] | None = None) -> RegoGuard:
    """Return a guard over one rule file, own.rego, whose package line stands before body (it is line 1)."""
    return RegoGuard(RuleSet(rules={"own.rego": f"package skerry.guard\n{body}"}, data=data or {}))
