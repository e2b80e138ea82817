"""What the agent asks of the policy layer: a guard that rules candidates out, a scheduler that picks one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol, runtime_checkable

import msgspec

from skerry.decision import Verdict
from skerry.node import Device
from skerry.task import TaskSpec


class DeviceView(msgspec.Struct, frozen=True, kw_only=True):
    """One device as it is now. backlog_s: seconds of work already reserved on it (running and queued)."""

    device: Device
    backlog_s: float = 0.0
    running: int = 0
    queued: int = 0
    free_memory_bytes: int = 0


class NodeView(msgspec.Struct, frozen=True, kw_only=True):
    """An immutable snapshot of one node for one decision."""

    node: str
    region: str
    site: str = ""
    labels: Mapping[str, str] = {}
    memory_bytes: int = 0  #: what tasks may use when nothing runs; 0: not known, free_memory_bytes stands in
    free_memory_bytes: int = 0
    free_cpu_millicores: int = 0
    devices: tuple[DeviceView, ...] = ()


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """A scheduler's pick. scores and expected_s: one value per given device, in the order given."""

    index: int  #: into the devices given
    reason: str
    scores: tuple[float, ...]  #: 0-100, higher is better
    expected_s: tuple[float, ...]  #: expected completion from now, seconds


class Scheduler(Protocol):
    """A traditional scheduler (or a policy): pure, deterministic, ties broken by device_id."""

    @property
    def name(self) -> str:
        """Its name in settings and decisions."""
        ...

    def choose(self, task: TaskSpec, devices: Sequence[DeviceView], runtime_s: Sequence[float]) -> Choice:
        """Pick one of the allowed devices (never empty). runtime_s: expected run time on each, seconds."""
        ...


class Guard(Protocol):
    """Hard rules. Deny comes with the rule's message; rules that cannot be evaluated deny everything."""

    @property
    def revision(self) -> str:
        """Which rules these are (content hash)."""
        ...

    def verdicts(
        self, task: TaskSpec, node: NodeView, devices: Sequence[Device]
    ) -> list[tuple[Verdict, ...]]:
        """Return the rules' words on each device, in order; no denial among them means allowed."""
        ...


@runtime_checkable
class LiveGuard(Guard, Protocol):
    """A guard that also has rules about the present moment (load, free memory), never cached."""

    @property
    def has_live_rules(self) -> bool:
        """Whether live_verdicts can deny anything at all."""
        ...

    def live_verdicts(
        self, task: TaskSpec, node: NodeView, devices: Sequence[Device]
    ) -> list[tuple[Verdict, ...]]:
        """Return what the rules about this moment say on each device, in order."""
        ...
