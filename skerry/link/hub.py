"""The coordinator's side of the link to one node. Owns which session of the node counts; knows no other node.

Closing an old session never touches a newer one. Two machines under one key are held apart from both.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping

from skerry.clock import Instant
from skerry.link.actions import (
    Action,
    Alarm,
    FleetAhead,
    Quarantine,
    Refuse,
    SessionClosed,
    SessionOpened,
    StateReported,
)
from skerry.link.events import (
    Applied,
    ApplyFailed,
    BirthRefused,
    Event,
    LinkDown,
    LinkUp,
    LoadChanged,
    OutboxGrew,
    PeerOutdated,
    Received,
    RowsRead,
    StateChanged,
    Tick,
)
from skerry.link.receiver import MarkOf, StreamReceiver
from skerry.link.sender import StreamSender
from skerry.link.wire import UP_ROWS, read_body, send
from skerry.messages import (
    PROTOCOL,
    Birth,
    Hint,
    Lane,
    Presence,
    State,
    StateAck,
    StreamAck,
    StreamBatch,
    Welcome,
)
from skerry.node import NodeRecord
from skerry.topics import Leaf

#: Between two requests to say the birth again, seconds.
REBIRTH_PAUSE_S = 5.0
#: How long a node that is not heard should stay quiet, seconds.
REFUSED_PAUSE_S = 300.0
#: Between two answers to births that do not count: an old one that is sent again costs no more than this.
LECTURE_PAUSE_S = 2.0
#: No node can drive the terms beyond what every side can count.
MAX_TERM = 2**53
QUARANTINED = "this node is in quarantine until an operator releases it"
_BOOTS_REMEMBERED = 16


class HubLink:
    """Turns what one node says into what the coordinator does, and back."""

    def __init__(
        self,
        record: NodeRecord,
        *,
        term: int,
        command_epoch: str,
        mark_of: MarkOf,
        heads: Mapping[Lane, int] | None = None,
        version: str = "",
        state_interval_s: float = 5.0,
        credit: int = 2000,
        spread_s: Callable[[], float] = lambda: 0.0,
    ) -> None:
        """record: what the register knows of the node (session, boot, hardware, quarantine).

        mark_of: the store's inbox marks of this node.  heads: highest row of the node's command log, by lane.
        spread_s: within how many seconds the whole fleet may come back; 0: in one moment.
        """
        self._session = record.session
        self._boot_id = record.boot_id
        self._old_boots: deque[str] = deque(maxlen=_BOOTS_REMEMBERED)
        self._store_epoch = record.store_epoch
        self._old_stores: deque[str] = deque(maxlen=_BOOTS_REMEMBERED)
        self._process = ""
        self._hardware_id = record.inventory.hardware_id if record.inventory else ""
        self._is_quarantined = record.status == "quarantined"
        self._is_open = False
        self._is_unsure = False  #: a birth may have been missed while this side was cut off
        self._term = term
        self._version = version
        self._state_interval_s = state_interval_s
        self._spread_s = spread_s
        self._load = LoadChanged(credit)
        self._heads = dict(heads or {})
        self._sender = StreamSender(Leaf.COMMANDS, command_epoch)
        self._receiver = StreamReceiver(Leaf.ACK, UP_ROWS, mark_of)
        self._asked_birth_at: Instant | None = None
        self._lectured_at: Instant | None = None

    @property
    def session(self) -> int:
        """The newest session of the node, open or not."""
        return self._session

    @property
    def is_open(self) -> bool:
        """The node's newest session was welcomed and did not end."""
        return self._is_open

    def handle(self, event: Event, now: Instant) -> list[Action]:
        """Return what is to be done about an event, in order."""
        match event:
            case LinkUp():
                return self._sender.resume(now) if self._is_open else []
            case LinkDown():
                self._is_unsure = True
                self._sender.close()
                return []
            case Received(kind, body):
                return self._received(read_body(kind, body), now)
            case BirthRefused():
                return self._lecture(now)
            case OutboxGrew(lane, head):
                self._note_head(lane, head)
                return self._sender.grew(lane, now)
            case RowsRead():
                return self._sender.rows_read(event, now)
            case Applied():
                return self._receiver.applied(event)
            case ApplyFailed():
                return self._receiver.failed(event)
            case LoadChanged():
                self._load = event
                return self._receiver.load_changed(event, now)
            case Tick():
                return self._sender.tick(now)
            case StateChanged() | PeerOutdated():
                return []  # the other side's

    def release(self, *, is_moved: bool = False) -> None:
        """An operator has decided: hear the node again on its own machine, or if it moved on any."""
        self._is_quarantined = False
        self._store_epoch = self._process = ""
        if is_moved:
            self._hardware_id = ""
        self._old_boots.clear()
        self._old_stores.clear()

    def _received(self, body: object, now: Instant) -> list[Action]:
        if self._is_quarantined and not isinstance(body, Refuse):
            return [Refuse("quarantined"), *(self._lecture(now) if isinstance(body, Birth) else ())]
        match body:
            case Refuse():
                return [body]
            case Birth():
                return self._born(body, now)
            case Presence():
                return self._presence(body, now)
            case State() | StreamBatch() | StreamAck() if not self._is_open:
                return self._ask_birth(now)
            case State():
                return self._state(body)
            case StreamBatch():
                return self._receiver.received(body, now)
            case StreamAck():
                return self._sender.acked(body, now)
            case _:
                return [Refuse("wrong_direction", type(body).__name__)]

    def _born(self, birth: Birth, now: Instant) -> list[Action]:
        if birth.session < self._session:
            old = Refuse("old_session", f"session {birth.session}, the newest is {self._session}")
            return [old, *self._lecture(now)]
        if birth.protocol != PROTOCOL:
            return self._turn_away(birth, f"protocol {birth.protocol} is not spoken here, {PROTOCOL} is")
        reason = self._why_clone(birth)
        if reason:
            return self._quarantine(birth, reason, now)
        if self._term < birth.term <= MAX_TERM:
            return [FleetAhead(birth.term)]
        self._note_session(birth)
        self._receiver.attach(birth.store_epoch)
        return [SessionOpened(birth), self._welcome(birth), *self._open_commands(birth, now)]

    def _why_clone(self, birth: Birth) -> str:
        hardware_id = birth.inventory.hardware_id
        if self._hardware_id and hardware_id and hardware_id != self._hardware_id:
            return "another machine uses this node's key (its hardware differs)"
        if birth.boot_id in self._old_boots:
            return "two machines use this node's key (a boot came back that another had replaced)"
        if birth.session == self._session and self._boot_id not in ("", birth.boot_id):
            return "two machines use this node's key (one session in two boots: the disk was copied)"
        is_same_session = birth.session == self._session and "" not in (birth.process, self._process)
        if is_same_session and birth.process != self._process:
            return "two processes use this node's key (one session in both: the data was copied)"
        if birth.store_epoch and birth.store_epoch in self._old_stores:
            return "two machines use this node's key (a queue came back that another had replaced)"
        if birth.was and birth.session > self._session and birth.store_epoch == self._store_epoch:
            return "its queue is an older copy of the one that is known, or two machines use copies of one"
        return ""

    def _quarantine(self, birth: Birth, reason: str, now: Instant) -> list[Action]:
        self._lectured_at = now
        self._is_quarantined = True
        self._is_open = False
        self._sender.close()
        return [Quarantine(reason), *self._turn_away(birth, f"quarantined: {reason}")]

    def _turn_away(self, birth: Birth, reason: str) -> list[Action]:
        hint = Hint(boot_id=birth.boot_id, retry_after_s=REFUSED_PAUSE_S, reason=reason)
        return [Refuse("turned_away", reason), send(Leaf.HINT, hint)]

    def _note_session(self, birth: Birth) -> None:
        if self._boot_id not in ("", birth.boot_id):
            self._old_boots.append(self._boot_id)
        self._boot_id = birth.boot_id
        if self._store_epoch not in ("", birth.store_epoch):
            self._old_stores.append(self._store_epoch)
        self._store_epoch = birth.store_epoch
        self._process = birth.process
        self._session = birth.session
        self._hardware_id = birth.inventory.hardware_id or self._hardware_id
        self._is_open = True
        self._is_unsure = False
        self._asked_birth_at = None

    def _welcome(self, birth: Birth) -> Action:
        welcome = Welcome(
            session=birth.session,
            term=self._term,
            command_epoch=self._sender.epoch,
            marks=self._receiver.marks,
            credit=self._load.credit,
            version=self._version,
            state_interval_s=self._state_interval_s,
            birth_number=birth.number,
            spread_s=self._spread_s(),
        )
        return send(Leaf.WELCOME, welcome)

    def _open_commands(self, birth: Birth, now: Instant) -> list[Action]:
        """Begin where the node stands in this log; a node that knows another log begins at its start."""
        marks = birth.marks if birth.command_epoch == self._sender.epoch else {}
        ahead = [lane for lane, head in self._heads.items() if marks.get(lane.value, 0) > head]
        if ahead:
            self._sender.close()
            names = ", ".join(lane.value for lane in ahead)
            return [
                Alarm(f"the node has applied commands ({names}) that this log never wrote: it was restored"),
                FleetAhead(self._term),
            ]
        return self._sender.open(marks, self._load.credit, now)

    def _presence(self, presence: Presence, now: Instant) -> list[Action]:
        if presence.online:
            is_known = self._is_open and presence.session <= self._session and not self._is_unsure
            return [] if is_known else self._ask_birth(now)
        if presence.session != self._session or not self._is_open:
            return []
        self._is_open = False
        self._sender.close()
        return [SessionClosed(presence.session)]

    def _state(self, state: State) -> list[Action]:
        if state.session != self._session:
            return [Refuse("old_session", f"state of session {state.session}")]
        return [StateReported(state), send(Leaf.ACK, StateAck(session=state.session, number=state.number))]

    def _lecture(self, now: Instant) -> list[Action]:
        """Tell a node whose birth does not count why it is not heard: whatever it knows is out of date."""
        if self._lectured_at is not None and now.since(self._lectured_at) < LECTURE_PAUSE_S:
            return []
        self._lectured_at = now
        if self._is_quarantined:
            return [send(Leaf.HINT, Hint(retry_after_s=REFUSED_PAUSE_S, reason=QUARANTINED))]
        return [send(Leaf.HINT, Hint(newest_session=self._session, process=self._process))]

    def _ask_birth(self, now: Instant) -> list[Action]:
        if self._asked_birth_at is not None and now.since(self._asked_birth_at) < REBIRTH_PAUSE_S:
            return [Refuse("not_born")]
        self._asked_birth_at = now
        return [Refuse("not_born"), send(Leaf.HINT, Hint(must_be_born=True, spread_s=self._spread_s()))]

    def _note_head(self, lane: Lane, head: int | None) -> None:
        if head is not None:
            self._heads[lane] = max(head, self._heads.get(lane, 0))
