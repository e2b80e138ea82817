"""What may happen to a link core. Facts, in the past tense; both sides share them."""

from __future__ import annotations

import msgspec

from skerry.messages import Lane, Row, State


class _Event(msgspec.Struct, frozen=True):
    """A fact handed to a core together with the time."""


class LinkUp(_Event, frozen=True):
    """The transport is connected and subscribed."""


class LinkDown(_Event, frozen=True):
    """The transport lost its connection."""


class Received(_Event, frozen=True):
    """An envelope of the other side was opened. kind: the envelope's type.  body: JSON, not decoded."""

    kind: str
    body: bytes


class BirthRefused(_Event, frozen=True):
    """Hub only: an envelope with a birth was the node's own, but of an older session or seen before."""


class PeerOutdated(_Event, frozen=True):
    """Edge only: the coordinator spoke in a session older than one that was heard before."""


class OutboxGrew(_Event, frozen=True):
    """A commit put rows into a lane. head: the highest sequence number of the lane ever, when known."""

    lane: Lane
    head: int | None = None


class RowsRead(_Event, frozen=True):
    """The answer to ReadRows: rows above `after` in order; an empty tuple means there are none now."""

    lane: Lane
    after: int
    rows: tuple[Row, ...]


class Applied(_Event, frozen=True):
    """The rows of an ApplyRows are committed, and the inbox mark with them."""

    epoch: str
    lane: Lane
    upto: int


class ApplyFailed(_Event, frozen=True):
    """The rows of an ApplyRows were not committed (the disk refused); they will be asked for again."""

    epoch: str
    lane: Lane
    retry_after_s: float = 5.0


class LoadChanged(_Event, frozen=True):
    """What this side can take. credit: rows beyond the acknowledged; retry_after_s: nothing for so long."""

    credit: int = 2000
    retry_after_s: float = 0.0


class StateChanged(_Event, frozen=True):
    """Edge only: the node's state is now this; it replaces what was not sent yet."""

    state: State


class Tick(_Event, frozen=True):
    """Time has passed; give one at least each second."""


Event = (
    LinkUp
    | LinkDown
    | Received
    | BirthRefused
    | PeerOutdated
    | OutboxGrew
    | RowsRead
    | Applied
    | ApplyFailed
    | LoadChanged
    | StateChanged
    | Tick
)
