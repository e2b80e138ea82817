"""Which nodes can have a task at all, and why the others cannot, in words for people.

Owns the node's side (status, earlier refusals); what devices can do and rules allow it asks of `policy`.
Rules about the present moment are left to the node's own agent, which knows the moment.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from cloud_coordinator.placement.request import PlacementRequest
from cloud_coordinator.placement.snapshot import NodeState
from policy.filters import TEMPORARY_FILTERS, device_verdicts, memory_now
from policy.port import Guard
from skerry.decision import Verdict
from skerry.node import Device
from skerry.task import TaskSpec

#: Verdicts that pass without any change to the fleet: the task may wait.
PASSING = TEMPORARY_FILTERS | {"capacity", "node-stale", "node-lost"}


class Feasible(msgspec.Struct, frozen=True, kw_only=True):
    """The devices of one node that can have a task; against: why the others, or all of them, cannot."""

    node: NodeState
    devices: tuple[Device, ...]
    against: tuple[Verdict, ...]
    can_wait: bool  #: nothing lasting stands against one of its devices at least


def feasible(task: TaskSpec, node: NodeState, guard: Guard) -> Feasible:
    """Put one node through every filter and rule. Reads only the task's class, so that a batch shares it."""
    status = _status(task, node)
    by_device = _by_device(task, node, guard)
    said = [*filter(None, [status]), *(verdict for verdicts in by_device for verdict in verdicts)]
    able = tuple(d for d, verdicts in zip(node.devices, by_device, strict=True) if not verdicts)
    lasting = status is not None and status.rule not in PASSING
    if not node.devices and status is None:
        said.append(_no("no-device", "it has not said what devices it has"))
    return Feasible(
        node=node,
        devices=able if status is None else (),
        against=tuple(dict.fromkeys(said)),
        can_wait=not lasting and any(all(v.rule in PASSING for v in verdicts) for verdicts in by_device),
    )


def _by_device(task: TaskSpec, node: NodeState, guard: Guard) -> list[tuple[Verdict, ...]]:
    """What is denied to each device: rules are asked only of what can run the task."""
    view = node.view()
    full = memory_now(task, view)
    denied = [
        device_verdicts(task, device, view) or ((full,) if full is not None else ())
        for device in node.devices
    ]
    able = [index for index, verdicts in enumerate(denied) if not verdicts]
    if able:
        words = guard.verdicts(task, view, [node.devices[index] for index in able])
        for index, verdicts in zip(able, words, strict=True):
            denied[index] = tuple(verdict for verdict in verdicts if not verdict.allowed)
    return denied


def excluded(request: PlacementRequest, node: NodeState) -> Verdict | None:
    """Return the word against a node that handed this very task over or refused it before."""
    reason = request.excluded.get(node.name)
    return (
        None if reason is None else _no("excluded", f"it does not take it: {reason or 'no reason was given'}")
    )


def _status(task: TaskSpec, node: NodeState) -> Verdict | None:
    match node.record.status:
        case "online":
            return None
        case "stale" if task.constraints.nodes == (node.name,):
            return None  # pinned to it: the command waits in its log until the link is back
        case "stale":
            return _no("node-stale", "it has not been heard of for a while")
        case "lost":
            return _no("node-lost", "it is given up as lost")
        case "enrolled":
            return _no("node-status", "it has never been online")
        case "quarantined":
            return _no("node-status", "it is in quarantine")


def class_of(request: PlacementRequest) -> tuple[object, ...]:
    """Return what `feasible` and locality depend on: requests with equal classes share the answer."""
    task = request.task
    command = tuple(_command(task))
    return (
        *(task.kind, task.tenant, task.resources, task.data, task.constraints, task.priority, task.sla),
        *(task.effect, task.max_runtime_s, *command, request.data_region, request.home_site),
    )


def _command(task: TaskSpec) -> Iterator[object]:
    yield task.spec.__struct_config__.tag
    yield getattr(task.spec, "privileged", False)
    yield getattr(task.spec, "argv", ("",))[0]


def _no(rule: str, message: str) -> Verdict:
    return Verdict(rule=rule, allowed=False, message=message)
