"""The node's side of the link. Owns session and birth; knows neither sockets nor stores.

Nothing flows before the coordinator has welcomed the session and both sides have compared what they hold.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from enum import StrEnum
from random import Random

import msgspec

from skerry.clock import Instant
from skerry.link.actions import (
    Action,
    Alarm,
    LeasesHeld,
    Refuse,
    Rest,
    Send,
    SessionMoved,
    Welcomed,
)
from skerry.link.backoff import Backoff
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
from skerry.link.wire import DOWN_ROWS, read_body, send
from skerry.messages import Birth, Hint, Lane, Presence, State, StateAck, StreamAck, StreamBatch, Welcome
from skerry.topics import Leaf

BIRTH_FLOOR_S = 2.0
BIRTH_CAP_S = 60.0
#: On request a birth is said again no sooner than this: its welcome may be on the way. Seconds.
BIRTH_FRESH_S = 0.5
#: Between two births that a coordinator's outdated word calls for. Seconds.
TELL_AGAIN_S = 5.0
#: Reports whose moment is kept until they are acknowledged.
STATES_REMEMBERED = 64


class Phase(StrEnum):
    """Where the session stands."""

    DOWN = "down"  #: no connection
    ANNOUNCED = "announced"  #: the birth was said, no answer yet
    WELCOMED = "welcomed"  #: streams flow
    HELD = "held"  #: the coordinator holds rows that this store never wrote: an operator must decide


class EdgeLink:
    """Turns what happens at a node into what is said to the coordinator, and back."""

    def __init__(
        self,
        birth: Birth,
        *,
        mark_of: MarkOf,
        rng: Random,
        heads: Mapping[Lane, int] | None = None,
    ) -> None:
        """birth: what this session says of itself, with store_epoch and the command_epoch known so far.

        mark_of: the store's inbox marks of the coordinator.  heads: the highest row ever written, by lane;
        without them a store that was restored from a backup cannot be told from a whole one.
        """
        self._birth = birth
        self._heads = dict(heads or {})
        self._mark_of = mark_of
        self._sender = StreamSender(Leaf.EVENTS, birth.store_epoch)
        self._receiver = StreamReceiver(Leaf.UP_ACK, DOWN_ROWS, mark_of)
        self._receiver.attach(birth.command_epoch)
        self._rng = rng
        self._backoff = Backoff(rng, floor_s=BIRTH_FLOOR_S, cap_s=BIRTH_CAP_S)
        self._phase = Phase.DOWN
        self._births = 0
        self._announced_at: Instant | None = None
        self._birth_due: Instant | None = None
        self._quiet_until: Instant | None = None
        self._state: State | None = None
        self._state_sent_at: Instant | None = None
        self._states = 0
        self._unanswered: deque[tuple[int, Instant]] = deque(maxlen=STATES_REMEMBERED)
        self._state_interval_s = 5.0

    @property
    def phase(self) -> Phase:
        """Where the session stands."""
        return self._phase

    def handle(self, event: Event, now: Instant) -> list[Action]:
        """Return what is to be done about an event, in order."""
        match event:
            case LinkUp():
                return self._link_up(now)
            case LinkDown():
                return self._link_down()
            case Received(kind, body):
                return self._received(read_body(kind, body), now)
            case OutboxGrew(lane, head):
                self._note_head(lane, head)
                return self._sender.grew(lane, now)
            case RowsRead(lane, _, rows):
                self._note_head(lane, rows[-1].seq if rows else None)
                return self._sender.rows_read(event, now)
            case Applied():
                return self._spoken(self._receiver.applied(event))
            case ApplyFailed():
                return self._spoken(self._receiver.failed(event))
            case LoadChanged():
                return self._spoken(self._receiver.load_changed(event, now))
            case StateChanged(state):
                self._state = state
                return self._state_if_due(now)
            case Tick():
                return self._tick(now)
            case PeerOutdated():
                return self._tell_how_far(now)
            case BirthRefused():
                return []  # the other side's

    def wants_state(self, now: Instant) -> bool:
        """Decide whether a state would be said now: finding out what the node does is not free."""
        sent_at = self._state_sent_at
        is_due = sent_at is None or now.since(sent_at) >= self._state_interval_s
        return self._phase is Phase.WELCOMED and is_due

    def describe(self, birth: Birth, now: Instant) -> list[Action]:
        """Say from now on this of the session (its devices changed), at once when there is a connection."""
        self._birth = msgspec.structs.replace(
            birth,
            store_epoch=self._birth.store_epoch,
            salvaged_from=self._birth.salvaged_from,
            session=self._birth.session,
            process=self._birth.process,
            was=self._birth.was,
            term=self._birth.term,
        )
        is_silent = self._phase in (Phase.DOWN, Phase.HELD) or self._quiet_until is not None
        return [] if is_silent else self._announce(now)

    def change_store(
        self, store_epoch: str, salvaged_from: tuple[str, ...], heads: Mapping[Lane, int], now: Instant
    ) -> list[Action]:
        """Go on with another store, which has taken over what could be read of the one that was damaged.

        Its rows have numbers of their own, and what was received is what it knows to have been received.
        """
        self._birth = msgspec.structs.replace(
            self._birth, store_epoch=store_epoch, salvaged_from=salvaged_from
        )
        self._heads = dict(heads)
        epoch = self._receiver.epoch
        self._sender = StreamSender(Leaf.EVENTS, store_epoch)
        self._receiver = StreamReceiver(Leaf.UP_ACK, DOWN_ROWS, self._mark_of)
        self._receiver.attach(epoch)
        if self._phase == Phase.DOWN:
            return []
        self._phase = Phase.ANNOUNCED  # also from the hold: numbers that were never written are no more
        return [] if self._quiet_until is not None else self._announce(now)

    def farewell(self) -> list[Action]:
        """Say good-bye in order, before the transport is stopped."""
        return [] if self._phase == Phase.DOWN else [self._presence(online=False)]

    def _link_up(self, now: Instant) -> list[Action]:
        self._backoff.wake()
        self._quiet_until = None
        # The birth goes first: presence alone makes a coordinator that came later ask for it.
        return [*self._announce(now), self._presence(online=True)]

    def _link_down(self) -> list[Action]:
        self._phase = Phase.DOWN
        self._birth_due = None
        self._sender.close()
        return []

    def _announce(self, now: Instant) -> list[Action]:
        self._phase = Phase.ANNOUNCED
        self._sender.close()
        self._births += 1
        self._announced_at = now
        self._birth_due = now.plus(BIRTH_FLOOR_S + self._backoff.next_delay_s())
        birth = msgspec.structs.replace(
            self._birth,
            number=self._births,
            command_epoch=self._receiver.epoch,
            marks=self._receiver.marks,
        )
        return [send(Leaf.BIRTH, birth)]

    def _received(self, body: object, now: Instant) -> list[Action]:
        match body:
            case Refuse():
                return [body]
            case Welcome():
                return self._welcome(body, now)
            case Hint():
                return self._hint(body, now)
            case StreamAck():
                return self._sender.acked(body, now)
            case StateAck():
                return self._state_taken(body, now)
            case StreamBatch() if self._phase == Phase.WELCOMED:
                return self._receiver.received(body, now)
            case StreamBatch():
                return [Refuse("not_welcomed")]
            case _:
                return [Refuse("wrong_direction", type(body).__name__)]

    def _welcome(self, welcome: Welcome, now: Instant) -> list[Action]:
        if self._phase in (Phase.DOWN, Phase.HELD):
            return []
        if welcome.session != self._birth.session or welcome.birth_number not in (0, self._births):
            return [Refuse("old_session", f"a welcome for session {welcome.session}")]
        if self._phase == Phase.WELCOMED:
            return []
        ahead = self._rows_never_written(welcome)
        if ahead:
            self._phase = Phase.HELD
            return [Alarm(ahead)]
        self._phase = Phase.WELCOMED
        self._birth = msgspec.structs.replace(self._birth, term=max(self._birth.term, welcome.term))
        self._birth_due = self._quiet_until = None  # whatever was asked before: it has answered now
        self._state_interval_s = max(0.1, welcome.state_interval_s)
        self._state_sent_at = None
        forgotten = self._rows_forgotten(welcome)
        self._receiver.attach(welcome.command_epoch)
        opened = self._sender.open(welcome.marks, welcome.credit, now)
        return [Welcomed(welcome), *forgotten, *self._state_if_due(now), *opened]

    def _rows_never_written(self, welcome: Welcome) -> str:
        for lane, head in self._heads.items():
            mark = welcome.marks.get(lane.value, 0)
            if mark > head:
                return (
                    f"the coordinator holds {lane.value} rows up to {mark}, this queue wrote up to {head}: it"
                    " was restored from an older copy, and what it would say now was said before. Nothing is"
                    " sent until its file is replaced by the newest copy, or moved away to begin anew"
                )
        return ""

    def _rows_forgotten(self, welcome: Welcome) -> list[Action]:
        return [
            Alarm(f"the coordinator holds {lane.value} rows up to {mark} only, it had acknowledged {acked}")
            for lane, acked in self._sender.marks.items()
            if (mark := welcome.marks.get(lane.value, 0)) < acked
        ]

    def _hint(self, hint: Hint, now: Instant) -> list[Action]:
        if hint.boot_id not in ("", self._birth.boot_id):
            return []
        actions: list[Action] = []
        if hint.reason:
            actions.append(Alarm(hint.reason))
        if hint.reason and hint.retry_after_s > 0:
            actions.append(Rest(min(hint.retry_after_s, 3600.0)))
        if self._is_superseded(hint):
            return [*actions, *self._move_session(hint.newest_session + 1, now)]
        if hint.retry_after_s > 0:
            self._pause(now.plus(min(hint.retry_after_s, 3600.0)))
        elif hint.must_be_born and hint.spread_s > 0 and self._quiet_until is None:
            self._pause(now.plus(self._rng.uniform(0.0, min(hint.spread_s, 3600.0))))
        elif hint.must_be_born:
            actions += self._announce_again(now)
        return actions

    def _is_superseded(self, hint: Hint) -> bool:
        """Decide whether another process has spoken for this node later than this one, or as this session.

        So it is after this queue was lost or restored from a copy, and when a second machine has the key.
        """
        own = self._birth
        if self._phase in (Phase.DOWN, Phase.HELD) or hint.newest_session < own.session:
            return False
        return hint.newest_session > own.session or hint.process not in ("", own.process)

    def _move_session(self, session: int, now: Instant) -> list[Action]:
        self._birth = msgspec.structs.replace(self._birth, session=session, was=self._birth.session)
        return [SessionMoved(session), *self._announce(now), self._presence(online=True)]

    def _tell_how_far(self, now: Instant) -> list[Action]:
        """Say the birth again: it names the term that this coordinator does not know it had reached."""
        if self._announced_at is not None and now.since(self._announced_at) < TELL_AGAIN_S:
            return []
        return self._announce_again(now)

    def _announce_again(self, now: Instant) -> list[Action]:
        if self._phase in (Phase.DOWN, Phase.HELD) or self._quiet_until is not None:
            return []
        if now.since(self._announced_at or now) >= BIRTH_FRESH_S:
            return self._announce(now)
        if self._phase == Phase.ANNOUNCED:
            self._birth_due = (self._announced_at or now).plus(BIRTH_FRESH_S)
        return []

    def _pause(self, until: Instant) -> None:
        if self._phase in (Phase.ANNOUNCED, Phase.WELCOMED):
            self._phase = Phase.ANNOUNCED
            self._sender.close()
            self._quiet_until = self._birth_due = until

    def _tick(self, now: Instant) -> list[Action]:
        if self._phase == Phase.ANNOUNCED and self._birth_due is not None and _is_due(self._birth_due, now):
            self._quiet_until = None
            return self._announce(now)
        if self._phase == Phase.WELCOMED:
            return [*self._state_if_due(now), *self._sender.tick(now)]
        return []

    def _state_if_due(self, now: Instant) -> list[Action]:
        if self._phase != Phase.WELCOMED or self._state is None:
            return []
        if self._state_sent_at is not None and now.since(self._state_sent_at) < self._state_interval_s:
            return []
        self._state_sent_at = now
        self._states += 1
        self._unanswered.append((self._states, now))
        return [send(Leaf.STATE, msgspec.structs.replace(self._state, number=self._states))]

    def _state_taken(self, ack: StateAck, now: Instant) -> list[Action]:
        if ack.session != self._birth.session:
            return [Refuse("old_session", f"an answer to session {ack.session}")]
        held: list[Action] = []
        while self._unanswered and self._unanswered[0][0] <= ack.number:
            number, said_at = self._unanswered.popleft()
            if number == ack.number:
                held = [LeasesHeld(said_at), *self._sender.overtaken(said_at, now)]
        return held

    def _spoken(self, actions: list[Action]) -> list[Action]:
        """Without a welcome an acknowledgement has no one to go to; the next birth carries the marks."""
        return actions if self._phase == Phase.WELCOMED else [a for a in actions if not isinstance(a, Send)]

    def _note_head(self, lane: Lane, head: int | None) -> None:
        if head is not None:
            self._heads[lane] = max(head, self._heads.get(lane, 0))

    def _presence(self, *, online: bool) -> Action:
        return send(Leaf.PRESENCE, Presence(session=self._birth.session, online=online), retain=True)


def _is_due(at: Instant, now: Instant) -> bool:
    return now.uptime_s >= at.uptime_s
