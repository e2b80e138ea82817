"""What the core asks of its shell, once the ledger's commit is synced. Imperatives."""

from __future__ import annotations

import msgspec

from cloud_coordinator.placement.request import PlacementRequest
from cloud_coordinator.placement.snapshot import FleetSnapshot
from skerry.node import NodeRecord
from skerry.topics import Leaf


class _Action(msgspec.Struct, frozen=True):
    """Something to do."""


class Say(_Action, frozen=True):
    """Seal the body and publish it on this leaf of the node's topics. May be dropped without a link."""

    node: str
    leaf: Leaf
    kind: str
    body: bytes
    retain: bool = False


class MakePlan(_Action, frozen=True):
    """Plan these on this snapshot, on any thread, and answer PlanMade (or PlanFailed)."""

    requests: tuple[PlacementRequest, ...]
    snapshot: FleetSnapshot


class Wake(_Action, frozen=True):
    """Give a Ticked in so many seconds."""

    in_s: float


class KeyChanged(_Action, frozen=True):
    """Take note of a node's key (empty: none counts any more) and newest session before the next envelope.

    counter: of that session, up to which its envelopes are known; whatever else was heard is forgotten.
    """

    record: NodeRecord
    counter: int = 0


class TermBegun(_Action, frozen=True):
    """Speak from now on in the session of this term."""

    term: int


class TaskPlacedFirst(_Action, frozen=True):
    """Measure: a task got its first place so many seconds after its offer was committed."""

    task_id: str
    node: str
    waited_s: float


class RepliesKept(_Action, frozen=True):
    """Answers to training instructions are on disk: whoever runs rounds is to take them."""


class Report(_Action, frozen=True):
    """Log it. level: info, warning or error."""

    level: str
    text: str
    node: str = ""


Action = Say | MakePlan | Wake | KeyChanged | TermBegun | TaskPlacedFirst | RepliesKept | Report
