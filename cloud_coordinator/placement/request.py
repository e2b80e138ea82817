"""What is asked of placement, and what it answers. Values only."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from skerry.decision import Decision, Verdict
from skerry.fence import Fence
from skerry.task import TaskSpec


class PlacementRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One task that needs a node."""

    task_id: str
    task: TaskSpec
    home_node: str = ""
    home_region: str = ""
    home_site: str = ""
    order: int = 0  #: among equal priorities the lower one goes first
    #: Nodes that cannot have it, with the reason: the one that handed it over, those that refused it.
    excluded: Mapping[str, str] = {}
    under: tuple[int, ...] = ()  #: path of the placement that this coordinator itself holds; empty at the top

    @property
    def data_region(self) -> str:
        """Where its data are: as declared, else where it came from."""
        return self.task.data.home_region or self.home_region


class PlannedPlacement(msgspec.Struct, frozen=True, kw_only=True):
    """A proposal: nothing is promised until the applier has checked it again."""

    request: PlacementRequest
    node: str
    device: str
    runtime_s: float  #: expected run time there, seconds
    decision: Decision


class Unplaced(msgspec.Struct, frozen=True, kw_only=True):
    """A task that no node can have now. reasons: what stands against each node of the fleet, by name."""

    request: PlacementRequest
    decision: Decision
    reasons: Mapping[str, tuple[Verdict, ...]]
    can_wait: bool  #: a node could have it once room is free or it is back; else the fleet must change


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What one batch comes to. deferred: ids beyond the batch's limits, to be planned next."""

    revision: int
    placements: tuple[PlannedPlacement, ...] = ()
    unplaced: tuple[Unplaced, ...] = ()
    deferred: tuple[str, ...] = ()


class AppliedPlacement(msgspec.Struct, frozen=True, kw_only=True):
    """A placement that holds, to be written to the ledger with its reservation."""

    task_id: str
    node: str
    fence: Fence
    decision: Decision
    device: str
    memory_bytes: int
    expected_s: float


class StalePlacement(msgspec.Struct, frozen=True, kw_only=True):
    """A proposal that the fleet has outrun: plan it again, unless `is_settled` (it is placed already)."""

    request: PlacementRequest
    reason: str
    is_settled: bool = False


class Applied(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a plan."""

    placements: tuple[AppliedPlacement, ...] = ()
    stale: tuple[StalePlacement, ...] = ()
