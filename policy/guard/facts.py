"""What rules may know: the one input document, typed, checked before any rule sees it.

Owns the names that stand behind `input.` in a rule. Must not know of any rule engine.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from operator import attrgetter
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta

from policy.filters import executor_of
from policy.port import DeviceView, NodeView
from skerry.node import Device
from skerry.task import Resources, TaskSpec

Name = Annotated[str, Meta(min_length=1)]
Amount = Annotated[int, Meta(ge=0)]


class _Facts(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Part of the document; a missing or malformed field is a denial, never an undefined value."""


class DataFacts(_Facts, frozen=True, kw_only=True):
    """`input.task.data`."""

    labels: tuple[Name, ...]
    home_region: Name | None
    size_bytes: Amount


class ResourceFacts(_Facts, frozen=True, kw_only=True):
    """`input.task.resources`."""

    cpu_millicores: Amount
    memory_bytes: Amount
    accelerator: Name
    accelerator_count: Amount


class TaskFacts(_Facts, frozen=True, kw_only=True):
    """`input.task`: the class of task; neither its id nor its payload."""

    tenant: Name
    kind: Name
    executor: Name
    privileged: bool
    program: str  #: a command's argv[0], empty for other executors
    priority: Amount
    sla: str
    effect: Name
    max_runtime_s: float
    resources: ResourceFacts
    data: DataFacts


class NodeFacts(_Facts, frozen=True, kw_only=True):
    """`input.node`."""

    name: Name
    region: Name
    site: str
    labels: dict[str, str]


class DeviceFacts(_Facts, frozen=True, kw_only=True):
    """`input.device`."""

    device_id: Name
    device_class: Name
    name: str
    emulated: bool


class LiveFacts(_Facts, frozen=True, kw_only=True):
    """`input.live`: the present moment; only rules in `deny_now` may ask for it."""

    free_memory_bytes: Amount
    free_cpu_millicores: int
    backlog_s: float
    running: Amount
    queued: Amount


class Input(_Facts, frozen=True, kw_only=True):
    """The whole document; live is absent where verdicts are cached."""

    task: TaskFacts
    node: NodeFacts
    device: DeviceFacts
    live: LiveFacts | None = None


def input_document(task: TaskFacts, node: NodeFacts, device: DeviceFacts, live: LiveFacts | None) -> str:
    """Return the document as JSON.  Raises msgspec.ValidationError where a fact is missing or malformed."""
    document = msgspec.json.encode(Input(task=task, node=node, device=device, live=live))
    msgspec.json.decode(document, type=Input)  # frozen structs do not check what they are given
    return document.decode()


def task_facts(task: TaskSpec) -> TaskFacts:
    """Return what rules may know of a task."""
    argv = getattr(task.spec, "argv", ("",))
    return TaskFacts(
        tenant=task.tenant,
        kind=task.kind,
        executor=executor_of(task),
        privileged=bool(getattr(task.spec, "privileged", False)),
        program=argv[0],
        priority=task.priority,
        sla=task.sla,
        effect=task.effect,
        max_runtime_s=task.max_runtime_s,
        resources=_resource_facts(task.resources),
        data=DataFacts(
            labels=task.data.labels, home_region=task.data.home_region, size_bytes=task.data.size_bytes
        ),
    )


def node_facts(view: NodeView) -> NodeFacts:
    """Return what rules may know of a node."""
    return NodeFacts(name=view.node, region=view.region, site=view.site, labels=dict(view.labels))


def device_facts(device: Device) -> DeviceFacts:
    """Return what rules may know of a device."""
    return DeviceFacts(
        device_id=device.device_id,
        device_class=device.device_class,
        name=device.name,
        emulated=device.emulated,
    )


def live_facts(view: NodeView, device: DeviceView) -> LiveFacts:
    """Return what rules may know of the present moment."""
    return LiveFacts(
        free_memory_bytes=view.free_memory_bytes,
        free_cpu_millicores=view.free_cpu_millicores,
        backlog_s=device.backlog_s,
        running=device.running,
        queued=device.queued,
    )


def known_paths() -> Mapping[str, bool]:
    """Return every dotted path behind `input.`, with whether anything may stand below it (maps, lists)."""
    return dict(_paths(Input, ""))


def key_of(paths: Sequence[str]) -> Callable[[_Facts], Hashable]:
    """Return the function that takes the values at some paths of one part of the document as a cache key."""
    if not paths:
        return lambda part: None
    values: Callable[[_Facts], Any] = attrgetter(*paths)
    if "labels" in paths:  # a node's labels are a map
        return lambda part: msgspec.json.encode(values(part), order="deterministic")
    return values


def _resource_facts(resources: Resources) -> ResourceFacts:
    return ResourceFacts(
        cpu_millicores=resources.cpu_millicores,
        memory_bytes=resources.memory_bytes,
        accelerator=resources.accelerator,
        accelerator_count=resources.accelerator_count,
    )


def _paths(kind: type[msgspec.Struct], above: str) -> list[tuple[str, bool]]:
    found: list[tuple[str, bool]] = []
    for name, hint in get_type_hints(kind).items():
        inner = next((t for t in (hint, *get_args(hint)) if _is_struct(t)), None)
        found.append((f"{above}{name}", get_origin(hint) in (dict, tuple)))
        if inner is not None:
            found += _paths(inner, f"{above}{name}.")
    return found


def _is_struct(hint: Any) -> bool:
    return isinstance(hint, type) and issubclass(hint, msgspec.Struct)
