"""One link core a node, fed from the ledger. Owns which links there are; the protocol is skerry.link's.

What a link asks for (rows to read, rows to apply) is done here at once, inside the event's transaction; what
is to be said goes out after the commit, so an acknowledgement never runs ahead of it.
"""

from __future__ import annotations

import zlib
from collections import deque
from functools import partial

from cloud_coordinator.core import intake, leases, register
from cloud_coordinator.core.actions import Report, Say
from cloud_coordinator.core.turn import Limits, Memory, NodeNow, Turn
from cloud_coordinator.ledger.port import Ledger
from skerry.link.actions import (
    Action,
    Alarm,
    ApplyRows,
    FleetAhead,
    LeasesHeld,
    Quarantine,
    ReadRows,
    Refuse,
    Rest,
    Send,
    SessionClosed,
    SessionMoved,
    SessionOpened,
    StateReported,
    TrimOutbox,
    Welcomed,
)
from skerry.link.events import Applied, Event, LoadChanged, OutboxGrew, RowsRead
from skerry.link.hub import HubLink
from skerry.link.wire import send
from skerry.messages import Hint, Lane
from skerry.topics import Leaf


class Links:
    """The links of one coordinator."""

    def __init__(self, version: str) -> None:
        """version: the coordinator's own, told to nodes."""
        self._version = version
        self._hubs: dict[str, HubLink] = {}
        self._retry_after_s = 0.0

    def give(self, turn: Turn, name: str, event: Event) -> None:
        """Hand an event to one node's link and do what it asks for."""
        node = turn.memory.nodes.get(name)
        if node is None or not node.record.public_key:
            turn.count("refused", reason="unknown_sender")
            return
        pending: deque[Event] = deque([event])
        while pending:
            for action in self._hub(turn, node).handle(pending.popleft(), turn.now):
                answer = self._perform(turn, node, action)
                if answer is not None:
                    pending.append(answer)

    def give_all(self, turn: Turn, event: Event) -> None:
        """Hand an event to every link there is."""
        for name in list(self._hubs):
            self.give(turn, name, event)

    def hold_back(self, turn: Turn, retry_after_s: float) -> None:
        """Have every link, those to come too, refuse rows for so long; 0: take them again, and say so."""
        if retry_after_s > 0 and not self._retry_after_s:
            turn.count("held_back")
            turn.act(Report("warning", f"more waits than can be done soon: nodes wait {retry_after_s:g} s"))
        self._retry_after_s = retry_after_s
        for name in list(self._hubs):
            self.give(turn, name, self._load_for(name))

    def send_grown(self, turn: Turn) -> None:
        """Have the links read what this event wrote into command logs."""
        while turn.grown:
            (name, lane), head = turn.grown.popitem()
            if name in self._hubs:
                self.give(turn, name, OutboxGrew(lane, head))

    def ask_birth(self, turn: Turn, name: str) -> None:
        """Have a node say its birth again: what it said was meant for an older state of this ledger."""
        hint = send(Leaf.HINT, Hint(must_be_born=True))
        turn.act(Say(name, hint.leaf, hint.kind, hint.body, hint.retain))

    def drop(self, name: str) -> None:
        """Forget a link: the node must say its birth again."""
        self._hubs.pop(name, None)

    def drop_all(self) -> None:
        """Forget every link (the ledger's last commit failed, so they know more than it does)."""
        self._hubs.clear()

    def release(self, name: str, *, is_moved: bool) -> None:
        """End a quarantine."""
        if name in self._hubs:
            self._hubs[name].release(is_moved=is_moved)

    def is_open(self, name: str) -> bool:
        """Decide whether a node's session is open."""
        return name in self._hubs and self._hubs[name].is_open

    def _hub(self, turn: Turn, node: NodeNow) -> HubLink:
        name = node.record.name
        if name not in self._hubs:
            ledger = turn.ledger
            self._hubs[name] = HubLink(
                node.record,
                term=turn.term,
                command_epoch=ledger.epoch,
                mark_of=partial(_mark_of, ledger, name),
                heads={lane: ledger.head(name, lane).last for lane in Lane},
                version=self._version,
                state_interval_s=turn.limits.state_interval_s,
                spread_s=partial(_spread_s, turn.memory, turn.limits),
            )
            if self._retry_after_s:
                self._hubs[name].handle(self._load_for(name), turn.now)
        return self._hubs[name]

    def _load_for(self, name: str) -> LoadChanged:
        """Each node waits up to twice as long, by its name: they must not all come back in one moment."""
        share = zlib.crc32(name.encode()) / 2**32
        return LoadChanged(retry_after_s=self._retry_after_s * (1.0 + share))

    def _perform(self, turn: Turn, node: NodeNow, action: Action) -> Event | None:
        name = node.record.name
        match action:
            case Send():
                turn.act(Say(name, action.leaf, action.kind, action.body, action.retain))
            case ReadRows(lane, after, limit, limit_bytes):
                rows = turn.ledger.commands(name, lane, after, limit=limit, limit_bytes=limit_bytes)
                return RowsRead(lane, after, tuple(rows))
            case TrimOutbox(lane, upto):
                leases.taken(turn, node, lane, upto)
                turn.ledger.trim_commands(name, lane, upto)
            case ApplyRows():
                return _apply(turn, name, action)
            case SessionOpened(birth):
                register.born(turn, node, birth)
            case SessionClosed():
                register.session_closed(turn, node)
            case StateReported(state):
                register.state_reported(turn, node, state)
            case FleetAhead(term):
                turn.ahead = (name, term)
            case Quarantine(reason):
                register.quarantined(turn, node, reason)
            case Refuse(reason):
                turn.count("refused", node=name, reason=reason[:64])
            case Alarm(text):
                turn.act(Report("error", text, name))
            case Welcomed() | LeasesHeld() | SessionMoved() | Rest():
                pass  # the other side's
        return None


def _apply(turn: Turn, name: str, action: ApplyRows) -> Applied:
    intake.apply_rows(turn, name, action.epoch, action.lane, action.rows, action.upto)
    return Applied(action.epoch, action.lane, action.upto)


def _spread_s(memory: Memory, limits: Limits) -> float:
    """What takes less than a second needs no spreading."""
    needs_s = len(memory.nodes) / limits.reconnects_per_s
    return needs_s if needs_s >= 1.0 else 0.0


def _mark_of(ledger: Ledger, name: str, epoch: str, lane: Lane) -> int:
    return ledger.mark(name, epoch, lane).upto
