"""Hard capability filters: can this device run this task at all, and if not, why, in words for people.

Owns what a task may ask of a device and a node. Must not know of rules (the guard's) or of speed (the
scheduler's). A filter is silent about what it allows: no verdict means nothing stands against the device.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from policy.port import NodeView
from skerry.decision import Verdict
from skerry.node import Device
from skerry.task import TaskSpec

#: Verdicts of these filters may change while the node stays as it is; all others hold for good.
TEMPORARY_FILTERS = frozenset({"device-unusable", "memory-now"})

#: Every filter's name in verdicts; any other name is a rule's.
FILTER_NAMES = TEMPORARY_FILTERS | {
    "region",
    "node",
    "device",
    "device-class",
    "device-count",
    "executor",
    "cpu",
    "memory",
}

Filter = Callable[[TaskSpec, Device, NodeView], Verdict | None]


def device_verdicts(task: TaskSpec, device: Device, view: NodeView) -> tuple[Verdict, ...]:
    """Return every filter's word against this device; empty when it can run the task."""
    return tuple(verdict for check in FILTERS if (verdict := check(task, device, view)) is not None)


def memory_now(task: TaskSpec, view: NodeView) -> Verdict | None:
    """Return the word against a node whose memory is in use now.

    For who chooses among nodes: on a node itself a task waits in its device's queue until there is room.
    """
    needs, free = task.resources.memory_bytes, view.free_memory_bytes
    if needs <= free:
        return None
    return _no("memory-now", f"needs {in_units(needs)}, only {in_units(free)} is free now")


def _usable(task: TaskSpec, device: Device, view: NodeView) -> Verdict | None:
    if device.usable:
        return None
    return _no(
        "device-unusable", f"{device.device_id} is not usable: {device.reason or 'no reason was given'}"
    )


def _device_class(task: TaskSpec, device: Device, view: NodeView) -> Verdict | None:
    wanted = task.resources.accelerator
    if (
        wanted == "any"
        or wanted == device.device_class
        or (wanted == "none" and device.device_class == "cpu")
    ):
        return None
    needs = "the cpu" if wanted == "none" else _a(wanted)
    return _no("device-class", f"needs {needs}, this is {_a(device.device_class)}")


def _device_count(task: TaskSpec, device: Device, view: NodeView) -> Verdict | None:
    wanted = task.resources.accelerator_count
    if wanted == 1:
        return None
    has = sum(d.device.device_class == device.device_class for d in view.devices)
    if has >= wanted:
        return None
    return _no(
        "device-count", f"needs {wanted} devices of one class, this node has {has} {device.device_class}"
    )


def _executor(task: TaskSpec, device: Device, view: NodeView) -> Verdict | None:
    executor = executor_of(task)
    if executor in device.executors:
        return None
    return _no("executor", f"device {device.device_id} has no executor {executor}")


def _memory(task: TaskSpec, device: Device, view: NodeView) -> Verdict | None:
    needs = task.resources.memory_bytes
    total = view.memory_bytes or view.free_memory_bytes
    if needs > total:
        return _no("memory", f"needs {in_units(needs)}, this node has {in_units(total)}")
    return None


def _cpu(task: TaskSpec, device: Device, view: NodeView) -> Verdict | None:
    needs, has = task.resources.cpu_millicores, device.cpu_millicores
    if device.device_class != "cpu" or has == 0 or needs <= has:
        return None
    return _no("cpu", f"needs {needs / 1000:.1f} cores, this node has {has / 1000:.1f}")


def _region(task: TaskSpec, device: Device, view: NodeView) -> Verdict | None:
    return _among("region", task.constraints.regions, view.region)


def _node(task: TaskSpec, device: Device, view: NodeView) -> Verdict | None:
    return _among("node", task.constraints.nodes, view.node)


def _device(task: TaskSpec, device: Device, view: NodeView) -> Verdict | None:
    wanted = task.constraints.devices
    if not wanted or device.device_class in wanted or device.device_id in wanted:
        return None
    return _no(
        "device", f"may only run on {_either(wanted)}, this is {device.device_id} ({device.device_class})"
    )


#: In the order in which their words are read: the node first, then the device, then what may pass.
FILTERS: tuple[Filter, ...] = (
    _region,
    _node,
    _device,
    _device_class,
    _device_count,
    _executor,
    _cpu,
    _memory,
    _usable,
)


def executor_of(task: TaskSpec) -> str:
    """Return the name of the executor that the task asks for."""
    return str(task.spec.__struct_config__.tag)


def in_units(size_bytes: int) -> str:
    """Return a size for people: `3.0 GiB`, `512 MiB`, `100 bytes`."""
    if size_bytes >= 1 << 30:
        return f"{size_bytes / (1 << 30):.1f} GiB"
    return f"{size_bytes / (1 << 20):.0f} MiB" if size_bytes >= 1 << 20 else f"{size_bytes} bytes"


def _among(rule: str, wanted: tuple[str, ...], has: str) -> Verdict | None:
    if not wanted or has in wanted:
        return None
    return _no(rule, f"may only run on {rule} {_either(wanted)}, this is {has}")


def _a(device_class: str) -> str:
    return f"an {device_class}" if device_class == "npu" else f"a {device_class}"


def _either(names: Iterable[str]) -> str:
    return " or ".join(sorted(names))


def _no(rule: str, message: str) -> Verdict:
    return Verdict(rule=rule, allowed=False, message=message)
