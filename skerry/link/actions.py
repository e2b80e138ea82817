"""What a link core asks its shell to do. Imperatives; the shell performs them in the order given."""

from __future__ import annotations

import msgspec

from skerry.clock import Instant
from skerry.messages import Birth, DownRow, Lane, Row, State, UpRow, Welcome
from skerry.topics import Leaf


class _Action(msgspec.Struct, frozen=True):
    """Something to do. An action that fails because the connection is gone may be dropped: it is repeated."""


class Send(_Action, frozen=True):
    """Seal the body and publish it on this leaf of the node's topics."""

    leaf: Leaf
    kind: str
    body: bytes
    retain: bool = False


class ReadRows(_Action, frozen=True):
    """Read rows of the outbox above `after`, within the limits (at least one row); answer with RowsRead."""

    lane: Lane
    after: int
    limit: int
    limit_bytes: int


class TrimOutbox(_Action, frozen=True):
    """The other side has committed the lane up to `upto`: these rows may leave the outbox."""

    lane: Lane
    upto: int


class ReceivedRow(_Action, frozen=True):
    """A row with its typed message; message is None when it cannot be understood, and problem says why."""

    row: Row
    message: UpRow | DownRow | None
    problem: str = ""


class ApplyRows(_Action, frozen=True):
    """Commit what these rows ask for, and the inbox mark `upto`, at once; answer Applied or ApplyFailed.

    Rows with a problem are dead-lettered in the same commit: they count as applied.
    """

    epoch: str
    lane: Lane
    rows: tuple[ReceivedRow, ...]
    upto: int


class Welcomed(_Action, frozen=True):
    """Edge: the coordinator knows this session; keep welcome.command_epoch for the next start."""

    welcome: Welcome


class SessionOpened(_Action, frozen=True):
    """Hub: a session of the node began (or said its birth again)."""

    birth: Birth


class SessionClosed(_Action, frozen=True):
    """Hub: the current session ended; never told of a session that a newer one replaced."""

    session: int


class StateReported(_Action, frozen=True):
    """Hub: the node's newest state."""

    state: State


class FleetAhead(_Action, frozen=True):
    """Hub: the node has heard of more than this ledger holds: it was lost, or restored from an older copy."""

    term: int


class Quarantine(_Action, frozen=True):
    """Hub: two machines use this node's key; hear neither until an operator decides."""

    reason: str


class SessionMoved(_Action, frozen=True):
    """Edge: seal everything from now on under this session, and remember that it was reached."""

    session: int


class LeasesHeld(_Action, frozen=True):
    """Edge: the coordinator has taken the state that was said at `since`: leases count anew from then.

    From then, not from now: however late the answer comes, the coordinator's own count began later.
    """

    since: Instant


class Rest(_Action, frozen=True):
    """Edge: nobody here wants to hear this node: once the connection is lost, stay away for so long."""

    for_s: float


class Refuse(_Action, frozen=True):
    """A message was understood as little as nothing, or came too late; count it under reason."""

    reason: str
    detail: str = ""


class Alarm(_Action, frozen=True):
    """Tell the operator; the link goes on as well as it can."""

    text: str


Action = (
    Send
    | ReadRows
    | TrimOutbox
    | ApplyRows
    | Welcomed
    | SessionOpened
    | SessionClosed
    | StateReported
    | FleetAhead
    | Quarantine
    | SessionMoved
    | LeasesHeld
    | Rest
    | Refuse
    | Alarm
)
