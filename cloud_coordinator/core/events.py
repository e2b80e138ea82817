"""What may happen to the coordinator's core. Facts, in the past tense."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from cloud_coordinator.placement.request import Plan
from skerry.messages import DownRow, Lane
from skerry.node import NodeRecord


class _Event(msgspec.Struct, frozen=True):
    """A fact handed to the core together with the time."""


class BrokerUp(_Event, frozen=True):
    """The transport is connected and subscribed."""


class BrokerDown(_Event, frozen=True):
    """The transport lost its connection."""


class Heard(_Event, frozen=True):
    """An envelope of an enrolled node was opened. kind: the envelope's type.  body: JSON, not decoded."""

    node: str
    kind: str
    body: bytes
    counter: int = 0  #: of the envelope in its session


class BirthDisregarded(_Event, frozen=True):
    """An enrolled node's own birth was refused at the door: of an older session, or seen before."""

    node: str


class RefusalsCounted(_Event, frozen=True):
    """Envelopes or requests were refused since the last count, by (claimed node, reason)."""

    counts: Mapping[tuple[str, str], int]


class PressureChanged(_Event, frozen=True):
    """More waits than can be done soon, or no longer. retry_after_s: when to ask again; 0: it is over."""

    retry_after_s: float


class NodeEnrolled(_Event, frozen=True):
    """A node showed a good token and its key."""

    record: NodeRecord


class NodeRevoked(_Event, frozen=True):
    """An operator put a node out of the fleet: its key counts for nothing from here on."""

    node: str


class NodeReleased(_Event, frozen=True):
    """An operator ended a node's quarantine. is_moved: whatever machine it is on now is its own."""

    node: str
    is_moved: bool = False


class CommandsGiven(_Event, frozen=True):
    """Another part of the coordinator has commands for nodes: (node, command), in order, in one lane.

    Whoever is not enrolled any more is left out.
    """

    commands: tuple[tuple[str, DownRow], ...]
    lane: Lane


class ContentStored(_Event, frozen=True):
    """The content store has this now."""

    name: str


class PlanMade(_Event, frozen=True):
    """The answer to MakePlan."""

    plan: Plan


class PlanFailed(_Event, frozen=True):
    """The planner gave up; its tasks are planned again later."""

    reason: str


class Ticked(_Event, frozen=True):
    """Time has passed; give one at least each second, and when a Wake is due."""


Event = (
    BrokerUp
    | BrokerDown
    | Heard
    | BirthDisregarded
    | RefusalsCounted
    | PressureChanged
    | NodeEnrolled
    | NodeRevoked
    | NodeReleased
    | ContentStored
    | CommandsGiven
    | PlanMade
    | PlanFailed
    | Ticked
)
