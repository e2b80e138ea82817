"""The link's shell at the node: envelopes over a transport, rows from and into the store. Owns no decision.

What is sent waits in the store's outbox, never here; what arrives is committed before it is acknowledged.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence

import msgspec

from edge_agent.core.commands import LEASE_SHARE, DeadLetter, operations_of
from edge_agent.core.events import LinkChanged
from edge_agent.homecoming import Homecoming
from edge_agent.outgoing import Outgoing
from edge_agent.round_trips import RoundTrips
from edge_agent.runtime_loop import CoreLoop
from edge_agent.runtime_report import StoreNow
from edge_agent.training_build import Training
from edge_agent.uplink_rows import OutboxReader, may_fill_outbox
from skerry.clock import Clock, Instant
from skerry.envelope import Speaker, open_envelope
from skerry.errors import EnvelopeRefused, NotConnected, QueueError, Rejected
from skerry.identity import Enrolment, PrivateKey, parse_public_key
from skerry.ids import TaskId
from skerry.link import actions as do
from skerry.link import events as happened
from skerry.link.edge import EdgeLink, Phase
from skerry.link.wire import KINDS, presence_body
from skerry.messages import Birth, Lane, PlaceTask, Presence, State, Welcome
from skerry.node import Inventory
from skerry.replay import ReplayWindows
from skerry.topics import COORDINATOR, Leaf, build, node_filters
from skerry.transport.port import Message, Transport, Will
from task_queue.operations import (
    Answer,
    MarkInbox,
    OfferAgain,
    Operation,
    PutMeta,
    RenewPlacements,
    TrimOutbox,
)
from task_queue.store import TaskFilter, TaskRecord
from task_queue.task import State as TaskState

log = logging.getLogger(__name__)

TICK_S = 0.5
#: Leases are renewed in the store at most this often, seconds.
RENEW_EVERY_S = 4.0
COMMAND_EPOCH = "link.command_epoch"
TERM = "link.term"
LEASE_S = "link.lease_s"
#: How far the link's sessions are ahead of the store's, after the coordinator knew a newer one.
SESSION_OFFSET = "link.session_offset"
DEAD_LETTERS = "link.dead_letters"
DEAD_LETTERS_KEPT = 50
_LANES = tuple(Lane)


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """Who this node is on the link. session: grows with each process."""

    enrolment: Enrolment
    key: PrivateKey
    session: int

    def topic(self, leaf: Leaf) -> str:
        """Return the node's topic for a leaf."""
        return build(self.enrolment.fleet, self.enrolment.node, leaf)


class Uplink:
    """Carries one node's session. A transport's Listener; everything runs on the event loop."""

    def __init__(
        self,
        identity: Identity,
        transport: Transport,
        link: EdgeLink,
        loop: CoreLoop,
        rows: OutboxReader,
        *,
        birth: Birth,
        clock: Clock,
        state_of: Callable[[], Awaitable[State]],
        store_now: Callable[[], StoreNow],
        outgoing: Outgoing,
        homecoming: Homecoming,
        training: Training,
        list_tasks: Callable[[TaskFilter], Awaitable[Sequence[TaskRecord]]],
        dead_letters: list[dict[str, object]] | None = None,
        lease_s: float = 0.0,
        session_offset: int = 0,
    ) -> None:
        """state_of: what the node does now.  store_now: the store; another takes a damaged one's place.

        dead_letters, lease_s, session_offset: as an earlier process kept them.
        """
        self._identity = identity
        self._transport = transport
        self._link = link
        self._loop = loop
        self._rows = rows
        self.outgoing = outgoing
        self._homecoming = homecoming
        self._training = training
        self._list = list_tasks
        self._command_epoch = birth.command_epoch
        self._birth = birth
        self._clock = clock
        self._state_of = state_of
        self._store_now = store_now
        self._speaker = Speaker(identity.key, source=identity.enrolment.node, session=identity.session)
        self._windows = ReplayWindows()
        self._windows.remember(COORDINATOR, birth.term)  # what an older one sealed is of the past, also now
        self._coordinator_key = parse_public_key(identity.enrolment.coordinator_public_key)
        self._topics = {leaf: identity.topic(leaf) for leaf in Leaf}
        self._dead_letters = list(dead_letters or [])
        self._lease_s = lease_s
        self._session_offset = session_offset
        self._renewed_at = float("-inf")
        self._jobs: set[asyncio.Task[None]] = set()
        self._ticker: asyncio.TimerHandle | None = None
        self._was_welcomed = False
        self.round_trips = RoundTrips(clock)
        self.refused: dict[str, int] = {}  #: messages refused, by reason
        self.down_reason = "not connected yet"
        self.changed_at = clock.now()
        self.alarm = ""

    @property
    def session(self) -> int:
        """The session under which this process speaks."""
        return self._identity.session

    @property
    def store_epoch(self) -> str:
        """The store whose rows are sent."""
        return self._birth.store_epoch

    @property
    def phase(self) -> Phase:
        """Where the session stands."""
        return self._link.phase

    def start(self) -> None:
        """Begin connecting, for ever; nothing else of the agent waits for it."""
        for topic_filter in node_filters(self._identity.enrolment.fleet, self._identity.enrolment.node):
            self._transport.subscribe(topic_filter)
        self._loop.seen += (self._saw_commit, self.round_trips.saw_commit)
        self._transport.start(self)
        self._ticked()
        self._begin(self._homecoming.run())
        self._begin(self.outgoing.run())

    def will(self) -> Will:
        """Return what the broker says when this session dies; called on the transport's thread."""
        topic = self._topics[Leaf.PRESENCE]
        body = presence_body(self._identity.session, online=False)
        return Will(topic=topic, payload=self._speaker.seal_will(topic, KINDS[Presence], body))

    def describe_devices(self, inventory: Inventory) -> None:
        """Say from now on that the node has this: a device went out of use, or came back."""
        self._birth = msgspec.structs.replace(self._birth, inventory=inventory)
        self._perform(self._link.describe(self._birth, self._clock.now()))

    async def stop(self) -> None:
        """Say good-bye when there is a connection, and stop."""
        if self._ticker is not None:
            self._ticker.cancel()
        self._perform(self._link.farewell())
        await asyncio.sleep(0)
        await asyncio.to_thread(self._transport.stop)
        if self._ticker is not None:
            self._ticker.cancel()  # a look that was under way has set it once more
        for job in self._jobs:
            job.cancel()
        await asyncio.gather(*self._jobs, return_exceptions=True)

    # --- what the transport tells

    def on_up(self) -> None:
        """See Listener."""
        self.down_reason = "the coordinator has not answered yet"
        self._begin(self._see_state())  # what it was before the outage is not to be said after the welcome
        self._handle(happened.LinkUp())

    def on_down(self, reason: str) -> None:
        """See Listener."""
        self.down_reason = reason
        self._handle(happened.LinkDown())

    def on_message(self, message: Message) -> None:
        """See Listener. A message that is refused is counted and acknowledged: it would only come again."""
        try:
            opened = open_envelope(
                message.payload, topic=message.topic, key_of=self._key_of, windows=self._windows
            )
        except EnvelopeRefused as error:
            self._refuse(error.reason, str(error))
            if error.reason == "old_session":
                self._handle(happened.PeerOutdated())
        else:
            self._handle(happened.Received(opened.kind, opened.body))
        message.acknowledge()

    def _key_of(self, source: str) -> bytes | None:
        return self._coordinator_key if source == COORDINATOR else None

    def _refuse(self, reason: str, detail: str) -> None:
        self.refused[reason] = self.refused.get(reason, 0) + 1
        log.warning("a message was refused (%s): %s", reason, detail)

    # --- the link core

    def _handle(self, event: happened.Event) -> None:
        self._perform(self._link.handle(event, self._clock.now()))
        is_welcomed = self._link.phase is Phase.WELCOMED
        if is_welcomed != self._was_welcomed:
            self._was_welcomed = is_welcomed
            self.changed_at = self._clock.now()
            self.round_trips.link_changed()
            self._loop.post(LinkChanged(is_up=is_welcomed))

    def _perform(self, actions: Sequence[do.Action]) -> None:
        for action in actions:
            match action:
                case do.Send():
                    self._send(action)
                case do.ReadRows():
                    self._begin(self._read(action))
                case do.TrimOutbox():
                    epoch = self._birth.store_epoch
                    self._begin(self._commit(TrimOutbox(lane=action.lane, upto=action.upto, epoch=epoch)))
                case do.ApplyRows():
                    self._begin(self._apply(action))
                case do.Welcomed():
                    self.down_reason, self.alarm = "", ""
                    self._transport.hint(action.welcome.spread_s)
                    self._begin(self._meet(action.welcome))
                case do.Refuse():
                    self._refuse(action.reason, action.detail)
                case do.Alarm():
                    self.alarm = action.text
                    log.error("the link needs attention: %s", action.text)
                case do.SessionMoved(session):
                    self._move_session(session)
                case do.LeasesHeld(since):
                    self._renew(since)
                case do.Rest():
                    self._transport.rest(action.for_s)
                case _:
                    log.error("the link asked a node for %s", type(action).__name__)

    def _send(self, action: do.Send) -> None:
        topic = self._topics[action.leaf]
        try:
            payload = self._speaker.seal(topic, action.kind, action.body)
            self._transport.publish(topic, payload, retain=action.retain)
        except NotConnected:
            return  # the link says it again once the transport is up
        except Rejected as error:
            self._refuse("too_large_to_send", str(error))

    def _begin(self, job: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(job)
        self._jobs.add(task)
        task.add_done_callback(self._jobs.discard)

    async def _read(self, action: do.ReadRows) -> None:
        rows = await self._rows.read(action)
        if self._has_other_store():
            return  # these rows may be its own, under other numbers
        self._handle(happened.RowsRead(action.lane, action.after, rows))

    async def _commit(self, *operations: Operation) -> None:
        try:
            await self._loop.commit(*operations)
        except QueueError as error:
            log.warning("the link's own note was not written and will be again: %s", error)

    async def _meet(self, welcome: Welcome) -> None:
        """Keep who welcomed this node; a ledger that is not the one it knew is offered again what waits."""
        known, self._command_epoch = self._command_epoch, welcome.command_epoch
        try:
            if known not in ("", welcome.command_epoch):
                await self._offer_again()
            await self._loop.commit(
                PutMeta(name=COMMAND_EPOCH, value=welcome.command_epoch),
                PutMeta(name=TERM, value=welcome.term),
            )
        except QueueError as error:
            self._command_epoch = known
            log.warning("what the coordinator's welcome asks for was not written yet: %s", error)

    async def _offer_again(self) -> None:
        log.warning("the coordinator's ledger is not the one it was: what waits elsewhere is offered again")
        before: TaskId | None = None
        handed_over = (TaskState.HANDED_OVER,)
        while page := await self._list(TaskFilter(states=handed_over, limit=200, before=before)):
            await self._loop.commit(*(OfferAgain(task_id=record.task_id) for record in page))
            before = page[-1].task_id

    async def _apply(self, action: do.ApplyRows) -> None:
        """Commit what the coordinator's rows ask for, with the mark that says so; then acknowledge."""
        operations, dead = operations_of(action.rows, wall_s=self._clock.wall_s())
        mark = MarkInbox(source=COORDINATOR, epoch=action.epoch, lane=action.lane, upto=action.upto)
        notes = [
            *self._note_dead(dead),
            *self._note_lease(action),
            *self._homecoming.note(operations),
            *self._training.note(action.rows),
        ]
        try:
            await self._loop.commit(*operations, *notes, mark)
        except QueueError as error:
            log.warning("the coordinator's commands were not written and will be asked for again: %s", error)
            self._handle(happened.ApplyFailed(action.epoch, action.lane))
        else:
            self._handle(happened.Applied(action.epoch, action.lane, action.upto))

    def _note_dead(self, dead: Sequence[DeadLetter]) -> list[Operation]:
        for letter in dead:
            self._refuse("dead_letter", f"row {letter.seq} of kind {letter.kind}: {letter.reason}")
            self._dead_letters.append(msgspec.to_builtins(letter))
        self._dead_letters = self._dead_letters[-DEAD_LETTERS_KEPT:]
        return [PutMeta(name=DEAD_LETTERS, value=self._dead_letters)] if dead else []

    def _note_lease(self, action: do.ApplyRows) -> list[Operation]:
        leases = [row.message.lease_s for row in action.rows if isinstance(row.message, PlaceTask)]
        if not leases or min(leases) == self._lease_s:
            return []
        self._lease_s = min(leases)
        return [PutMeta(name=LEASE_S, value=self._lease_s)]

    def _move_session(self, session: int) -> None:
        """Another process was heard under this name: go above its session, also after a restart."""
        log.warning("session %d is out of date at the coordinator; going on as %d", self.session, session)
        offset = self._session_offset + session - self.session
        self._session_offset = offset
        self._identity = msgspec.structs.replace(self._identity, session=session)
        self._speaker = self._speaker.in_session(session)
        self._begin(self._commit(PutMeta(name=SESSION_OFFSET, value=offset)))

    def _renew(self, since: Instant) -> None:
        """The coordinator has counted its leases anew after it was told at `since` what is held here."""
        now = self._clock.now()
        lease_s = self._lease_s * LEASE_SHARE - now.since(since)
        if lease_s > 0 and now.uptime_s - self._renewed_at >= min(RENEW_EVERY_S, self._lease_s / 4):
            self._renewed_at = now.uptime_s
            self._begin(self._commit(RenewPlacements(lease_s=lease_s)))

    # --- what the rest of the agent does

    def _saw_commit(self, operations: Sequence[Operation], answers: Sequence[Answer]) -> None:
        if any(map(may_fill_outbox, operations)):
            for lane in _LANES:
                self._handle(happened.OutboxGrew(lane))

    def _has_other_store(self) -> bool:
        """Go on with the store that has taken a damaged one's place, if one has."""
        store = self._store_now()
        if store.epoch == self._birth.store_epoch:
            return False
        log.warning("the queue goes on in a fresh store; the coordinator is told")
        epoch, before = store.epoch, store.salvaged_from
        self._birth = msgspec.structs.replace(self._birth, store_epoch=epoch, salvaged_from=before)
        self._perform(self._link.change_store(epoch, before, store.heads, self._clock.now()))
        return True

    def _tick(self) -> None:
        self._has_other_store()
        if self._link.wants_state(self._clock.now()):
            self._begin(self._tick_with_state())
        else:
            self._ticked()

    async def _tick_with_state(self) -> None:
        try:
            await self._see_state()
        except QueueError as error:
            log.warning("what this node does now cannot be read, and will be tried again: %s", error)
        self._ticked()

    def _ticked(self) -> None:
        self._handle(happened.Tick())
        self._ticker = asyncio.get_running_loop().call_later(TICK_S, self._tick)

    async def _see_state(self) -> None:
        self._handle(happened.StateChanged(await self._state_of()))
