"""The link's testing kit, which ships: a store in memory, and a shell that performs a core's actions on it.

The same shell runs over any transport, on a virtual clock or a real one.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable

import msgspec

from skerry.clock import Instant
from skerry.envelope import KeyOf, Speaker, is_birth_out_of_date, open_envelope
from skerry.errors import EnvelopeRefused, NotConnected
from skerry.fence import Fence
from skerry.link.actions import (
    Action,
    Alarm,
    ApplyRows,
    ReadRows,
    Refuse,
    Rest,
    Send,
    SessionMoved,
    TrimOutbox,
)
from skerry.link.edge import EdgeLink
from skerry.link.events import (
    Applied,
    ApplyFailed,
    BirthRefused,
    Event,
    LinkDown,
    LinkUp,
    OutboxGrew,
    Received,
    RowsRead,
    Tick,
)
from skerry.link.hub import HubLink
from skerry.link.wire import KINDS, presence_body
from skerry.messages import Lane, LossReported, Presence, RevokePlacement, Row, row_of
from skerry.replay import ReplayWindows
from skerry.topics import Leaf, build
from skerry.transport.port import Message, Transport, Will


def up_row(text: str) -> tuple[str, bytes]:
    """Return (kind, body) of a node's row that carries text."""
    return row_of(LossReported(lost_class="test", reason=text, count=1))


def down_row(text: str) -> tuple[str, bytes]:
    """Return (kind, body) of a coordinator's row that carries text."""
    return row_of(RevokePlacement(task_id="0" * 32, fence=Fence((1, 1)), reason=text))


class MemoryStore:
    """Outbox, inbox marks and what was applied, of one side; outlives the shells that use it."""

    def __init__(self, epoch: str, *, row: Callable[[str], tuple[str, bytes]] = up_row) -> None:
        """epoch: id of this store.  row: up_row at a node, down_row at the coordinator."""
        self._row = row
        self.epoch = epoch
        self.session = 0
        self.heads = dict.fromkeys(Lane, 0)
        self.marks: dict[tuple[str, Lane], int] = {}
        self.applied: list[tuple[Lane, int, str]] = []  #: lane, sequence number, what the row says
        self.failures_left = 0  #: commits that will be refused
        self._rows: dict[Lane, deque[Row]] = {lane: deque() for lane in Lane}

    def put(self, lane: Lane, text: str) -> int:
        """Append a row that carries text and return its number."""
        return self.put_raw(lane, *self._row(text))

    def put_raw(self, lane: Lane, kind: str, body: bytes) -> int:
        """Append any row and return its number."""
        self.heads[lane] += 1
        self._rows[lane].append(Row(seq=self.heads[lane], kind=kind, body=msgspec.Raw(body)))
        return self.heads[lane]

    def read(self, lane: Lane, after: int, limit: int, limit_bytes: int) -> tuple[Row, ...]:
        """Return rows above after, within the limits, at least one when there is one."""
        taken: list[Row] = []
        size = 0
        for row in self._rows[lane]:
            if row.seq <= after:
                continue
            size += len(row.body)
            if len(taken) == limit or (taken and size > limit_bytes):
                break
            taken.append(row)
        return tuple(taken)

    def trim(self, lane: Lane, upto: int) -> None:
        """Drop rows that the other side has committed."""
        rows = self._rows[lane]
        while rows and rows[0].seq <= upto:
            rows.popleft()

    def mark_of(self, epoch: str, lane: Lane) -> int:
        """Return up to where a stream is applied."""
        return self.marks.get((epoch, lane), 0)

    def apply(self, action: ApplyRows) -> bool:
        """Commit rows and mark at once; False when this commit is to be refused."""
        if self.failures_left:
            self.failures_left -= 1
            return False
        for received in action.rows:
            text = received.problem or getattr(received.message, "reason", "")
            self.applied.append((action.lane, received.row.seq, text))
        self.marks[action.epoch, action.lane] = action.upto
        return True

    @property
    def waiting(self) -> int:
        """Rows in the outbox."""
        return sum(len(rows) for rows in self._rows.values())


class Peer:
    """One side of a link: a core, its store and a transport. A Listener."""

    def __init__(
        self,
        core: EdgeLink | HubLink,
        store: MemoryStore,
        *,
        speaker: Speaker,
        fleet: str,
        node: str,
        key_of: KeyOf,
        now: Callable[[], Instant],
        later: Callable[[Callable[[], None]], None] | None = None,
    ) -> None:
        """later: runs a commit after a while; without it commits take no time."""
        self.core = core
        self.store = store
        self.alarms: list[str] = []
        self.refused: Counter[str] = Counter()
        self.actions: list[Action] = []  #: what the shell leaves to its owner
        self._speaker = speaker
        self._fleet = fleet
        self._node = node
        self._key_of = key_of
        self._now = now
        self._later = later or (lambda commit: commit())
        self._windows = ReplayWindows()
        self._transport: Transport | None = None
        self._events: deque[Event] = deque()
        self._is_busy = False
        self._is_dead = False

    def start(self, transport: Transport, filters: tuple[str, ...]) -> None:
        """Subscribe and connect."""
        self._transport = transport
        for topic_filter in filters:
            transport.subscribe(topic_filter)
        transport.start(self)

    def die(self) -> None:
        """Stop as a killed process does: nothing more is done, commits under way never happen."""
        self._is_dead = True

    def will(self) -> Will:
        """Return the signed will of a node's session."""
        topic = build(self._fleet, self._node, Leaf.PRESENCE)
        body = presence_body(self._speaker.session, online=False)
        return Will(topic=topic, payload=self._speaker.seal_will(topic, KINDS[Presence], body))

    def put(self, lane: Lane, text: str) -> None:
        """Append a row and tell the core."""
        head = self.store.put(lane, text)
        self.handle(OutboxGrew(lane, head))

    def tick(self) -> None:
        """Tell the core that time passed."""
        self.handle(Tick())

    def on_up(self) -> None:
        """The transport is connected."""
        self.handle(LinkUp())

    def on_down(self, reason: str) -> None:
        """The transport lost its connection."""
        self.handle(LinkDown())

    def on_message(self, message: Message) -> None:
        """Open the envelope and hand it to the core."""
        try:
            opened = open_envelope(
                message.payload, topic=message.topic, key_of=self._key_of, windows=self._windows
            )
        except EnvelopeRefused as refusal:
            self.refused[refusal.reason] += 1
            if is_birth_out_of_date(message.topic, refusal) and isinstance(self.core, HubLink):
                self.handle(BirthRefused())
        else:
            self.handle(Received(opened.kind, opened.body))
        message.acknowledge()

    def handle(self, event: Event) -> None:
        """Give the core an event and perform what it asks, and what follows from that."""
        self._events.append(event)
        if self._is_busy or self._is_dead:
            return
        self._is_busy = True
        try:
            while self._events:
                for action in self.core.handle(self._events.popleft(), self._now()):
                    self._perform(action)
        finally:
            self._is_busy = False

    def _perform(self, action: Action) -> None:
        match action:
            case Send():
                self._send(action)
            case ReadRows(lane, after, limit, limit_bytes):
                rows = self.store.read(lane, after, limit, limit_bytes)
                self._events.append(RowsRead(lane, after, rows))
            case TrimOutbox(lane, upto):
                self.store.trim(lane, upto)
            case ApplyRows():
                self._later(lambda: self._commit(action))
            case Rest(for_s):
                assert self._transport is not None
                self._transport.rest(for_s)
            case SessionMoved(session):
                self._speaker = self._speaker.in_session(session)
            case Alarm(text):
                self.alarms.append(text)
            case Refuse(reason):
                self.refused[reason] += 1
            case _:
                self.actions.append(action)

    def _send(self, action: Send) -> None:
        assert self._transport is not None
        topic = build(self._fleet, self._node, action.leaf)
        try:
            self._transport.publish(
                topic, self._speaker.seal(topic, action.kind, action.body), retain=action.retain
            )
        except NotConnected:
            self.refused["not_connected"] += 1  # the core repeats what matters

    def _commit(self, action: ApplyRows) -> None:
        if self._is_dead:
            return
        if self.store.apply(action):
            self.handle(Applied(action.epoch, action.lane, action.upto))
        else:
            self.handle(ApplyFailed(action.epoch, action.lane))
