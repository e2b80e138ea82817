"""What the core asks of the policy layer for one task, and gets: a port, so that the core holds no policy."""

from __future__ import annotations

from typing import Protocol

import msgspec

from policy.port import NodeView
from skerry.clock import Instant
from skerry.decision import Decision
from skerry.ids import TaskId
from skerry.task import TaskSpec


class Ruling(msgspec.Struct, frozen=True, kw_only=True):
    """One task's decision. device_id None: none here, for now, or (is_permanent) whatever happens here."""

    decision: Decision
    device_id: str | None = None
    runtime_s: float = 1.0  #: expected run time on the device
    is_measured: bool = False  #: whether that run time rests on runs there, and not on an estimate
    load_s: float = 0.0  #: what loading its model takes on the device, when it is not loaded
    is_permanent: bool = False


class Decider(Protocol):
    """Decides where a task entering the window runs: pure, deterministic."""

    def __call__(self, task_id: TaskId, task: TaskSpec, node: NodeView, now: Instant) -> Ruling:
        """Return the ruling for this task on this snapshot of the node."""
        ...
