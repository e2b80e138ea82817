"""A broker in memory on a virtual clock, with every fault of a network on demand. Deterministic by its seed.

Owns the clock, the wires and the retained messages; sees no wall clock, no thread and no event loop: things
happen, and listeners are called, inside `pump`. It keeps no session: what a cut-off client misses is gone.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable
from random import Random

import msgspec

from skerry.errors import NotConnected, Rejected
from skerry.link.backoff import Backoff
from skerry.transport.port import Listener, Message, Will


class Faults(msgspec.Struct, frozen=True, kw_only=True):
    """What the wires do to messages. Shares are between 0 and 1."""

    delay_s: tuple[float, float] = (0.001, 0.001)  #: lowest and highest, drawn for each message
    loss: float = 0.0
    duplication: float = 0.0
    reordering: bool = False  #: a message may overtake those before it
    bytes_per_s: float = 0.0  #: 0: as fast as you like


class MemoryBroker:
    """The clock, the wires, the subscriptions and the retained messages of one virtual network."""

    def __init__(self, *, seed: int = 0, now_s: float = 0.0, max_payload_bytes: int = 512 * 1024) -> None:
        """seed: decides every draw.  now_s: where the virtual clock starts."""
        self.now_s = now_s
        self.max_payload_bytes = max_payload_bytes
        self.faults = Faults()
        self.seed = seed
        self.rng = Random(seed)
        self.retained: dict[str, bytes] = {}
        self.dropped = 0
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._order = 0
        self._clients: dict[str, MemoryTransport] = {}
        self._away: dict[str, MemoryTransport] = {}  # by name: who has lost its connection, or found none
        self._partitioned: set[str] = set()
        #: Clients to whom nothing arrives, and clients of whom nothing does: it accepts and discards.
        self.deaf: set[str] = set()
        self.mute: set[str] = set()
        self._is_running = True
        #: How often a client was put out by another one of its name.
        self.takeovers: Counter[str] = Counter()

    # --- the clock -------------------------------------------------------------------------------------

    def at(self, when_s: float, action: Callable[[], None]) -> None:
        """Do something at a moment of the virtual clock; equal moments keep their order."""
        self._order += 1
        heapq.heappush(self._due, (max(when_s, self.now_s), self._order, action))

    def pump(self, until_s: float) -> None:
        """Let everything happen that is due up to then, in order, and move the clock there."""
        while self._due and self._due[0][0] <= until_s:
            self.pump_one()
        self.now_s = max(self.now_s, until_s)

    def next_due_s(self) -> float | None:
        """Return when the next thing happens, None when nothing will."""
        return self._due[0][0] if self._due else None

    def pump_one(self) -> None:
        """Let the next thing happen, and move the clock to it."""
        when_s, _, action = heapq.heappop(self._due)
        self.now_s = max(self.now_s, when_s)
        action()

    # --- faults ----------------------------------------------------------------------------------------

    def partition(self, client_id: str) -> None:
        """Black-hole a client: it still believes in its connection, and nothing passes either way."""
        self._partitioned.add(client_id)

    def cut(self, client_id: str) -> None:
        """Break a client's connection until `heal`: it is told, and its will is published."""
        self._partitioned.add(client_id)
        client = self._clients.get(client_id)
        if client is not None:
            self._disconnect(client, "the connection was cut")

    def heal(self, client_id: str, *, is_noticed: bool = True) -> None:
        """End a partition or a cut.  is_noticed: it was the client's own network, whose return it sees."""
        self._partitioned.discard(client_id)
        if is_noticed and client_id in self._away:
            self._away[client_id].network_came_up()

    def is_cut_off(self, client_id: str) -> bool:
        """Say whether nothing passes to or from a client, whether or not it knows."""
        return client_id in self._partitioned

    def crash(self) -> None:
        """Kill the broker: every connection breaks without a will, retained messages are gone."""
        self._is_running = False
        self.retained.clear()
        for client in list(self._clients.values()):
            self._part(client, "the broker is gone")

    def restart(self) -> None:
        """Start the broker again; clients come back by themselves."""
        self._is_running = True

    def reaches(self, client_id: str) -> bool:
        """Decide whether what passes between a client and the others arrives, both ways."""
        return self._is_running and client_id not in self._partitioned | self.deaf | self.mute

    # --- what clients ask ------------------------------------------------------------------------------

    def connect(self, client: MemoryTransport) -> bool:
        """Take a client in, ending an older connection under its name. Returns whether it could."""
        if not self._is_running or client.client_id in self._partitioned:
            self._away[client.client_id] = client
            return False
        self._away.pop(client.client_id, None)
        older = self._clients.get(client.client_id)
        if older is not None and older is not client:
            self.takeovers[client.client_id] += 1
            self._disconnect(older, "another client took this name over")
        self._clients[client.client_id] = client
        return True

    def leave(self, client: MemoryTransport) -> None:
        """Let a client go in order: no will."""
        self._forget(client)

    def bury(self, client: MemoryTransport) -> None:
        """Publish the will of a client whose process is gone, unless its wire is cut as well."""
        if self._clients.get(client.client_id) is client and client.client_id not in self._partitioned:
            self._disconnect(client, "the process is gone")
        self._forget(client)

    def publish(self, client: MemoryTransport, topic: str, payload: bytes, *, retain: bool) -> None:
        """Take a message from a client's wire."""
        self._carry(client, len(payload), lambda: self._route(topic, payload, retain))

    def say_retained(self, client: MemoryTransport, topic_filter: str) -> None:
        """Give a new subscriber what is retained on its filter."""
        for topic, payload in list(self.retained.items()):
            if matches(topic_filter, topic):
                self._give(client, topic, payload, True)

    def _route(self, topic: str, payload: bytes, retain: bool) -> None:
        if not self._is_running:
            self.dropped += 1
            return
        if retain and payload:
            self.retained[topic] = payload
        elif retain:
            self.retained.pop(topic, None)
        for client in list(self._clients.values()):
            if any(matches(topic_filter, topic) for topic_filter in client.filters):
                self._give(client, topic, payload, False)

    def _give(self, client: MemoryTransport, topic: str, payload: bytes, retained: bool) -> None:
        connection = client.connection
        self._carry(
            client, len(payload), lambda: client.hear(connection, topic, payload, retained), inward=True
        )

    def _carry(
        self, client: MemoryTransport, size: int, arrive: Callable[[], None], *, inward: bool = False
    ) -> None:
        """Move one message over a client's wire, with whatever the faults do to it."""
        for _ in range(1 + (self.rng.random() < self.faults.duplication)):
            if self.rng.random() < self.faults.loss:
                self.dropped += 1
                continue
            self.at(
                client.arrival_s(self.now_s, size, self.faults, self.rng, inward=inward),
                lambda: self._arrive(client, arrive, inward=inward),
            )

    def _arrive(self, client: MemoryTransport, arrive: Callable[[], None], *, inward: bool) -> None:
        if client.client_id in self._partitioned or client.client_id in (self.deaf if inward else self.mute):
            self.dropped += 1
        else:
            arrive()

    def _disconnect(self, client: MemoryTransport, reason: str) -> None:
        will = client.last_will
        self._part(client, reason)
        if will is not None:
            self._route(will.topic, will.payload, will.retain)

    def _part(self, client: MemoryTransport, reason: str) -> None:
        self._forget(client)
        self._away[client.client_id] = client
        client.lose(reason)

    def _forget(self, client: MemoryTransport) -> None:
        if self._clients.get(client.client_id) is client:
            del self._clients[client.client_id]


class MemoryTransport:
    """A client of a MemoryBroker; the Transport port on its virtual clock."""

    def __init__(
        self,
        broker: MemoryBroker,
        *,
        client_id: str,
        will: Callable[[], Will] | None = None,
        rng: Random | None = None,
    ) -> None:
        """client_id: one of its own per process.  will: made at each connect.  rng: of the back-off."""
        self.client_id = client_id
        self.filters: list[str] = []
        self.connection = 0  #: counts connections; what belongs to an older one is not heard
        self.last_will: Will | None = None
        self._broker = broker
        self._make_will = will
        self._listener: Listener | None = None
        self._is_up = False
        self._backoff = Backoff(rng or Random(f"{broker.seed} {client_id} {broker.now_s}"))
        self._up_since_s = 0.0
        self._rests_until_s = 0.0
        self._due_s = 0.0  # when the next try is due; one that was armed for another moment is void
        self._free_s = [0.0, 0.0]  # when each direction of the wire has sent what it was given
        self._last_s = [0.0, 0.0]  # when the last message of each direction arrives

    def start(self, listener: Listener) -> None:
        """Begin connecting at the present moment of the virtual clock."""
        self._listener = listener
        self._arm(self._broker.now_s)

    def subscribe(self, topic_filter: str) -> None:
        """Ask for messages on a filter, now and after every reconnect."""
        self.filters.append(topic_filter)
        if self._is_up:
            self._broker.say_retained(self, topic_filter)

    def publish(self, topic: str, payload: bytes, *, retain: bool = False) -> None:
        """Put one message on the wire.  Raises NotConnected, Rejected (too large)."""
        if len(payload) > self._broker.max_payload_bytes:
            raise Rejected(f"a message of {len(payload)} bytes on {topic}")
        if not self._is_up:
            raise NotConnected("there is no connection to the broker in memory")
        self._broker.publish(self, topic, payload, retain=retain)

    @property
    def is_up(self) -> bool:
        """There is a connection right now."""
        return self._is_up

    def wake(self) -> None:
        """Try to connect at the present moment."""
        self._backoff.wake()
        self._rests_until_s = 0.0
        self._arm(self._broker.now_s)

    def network_came_up(self) -> None:
        """Try to connect soon: the client's own network is back."""
        self._backoff.wake()
        soon_s = self._broker.now_s + self._backoff.next_delay_s(was_answered=False)
        self._arm(min(self._due_s, max(soon_s, self._rests_until_s)))

    def hint(self, spread_s: float) -> None:
        """Draw no delay before a reconnect from less than this many virtual seconds."""
        self._backoff.hint(spread_s)

    def rest(self, for_s: float) -> None:
        """Stay away for so many virtual seconds once the connection is lost; `wake` ends it."""
        self._rests_until_s = self._broker.now_s + for_s

    def stop(self) -> None:
        """Disconnect in order and stop for good."""
        self._listener = None
        self._is_up = False
        self._broker.leave(self)

    def die(self) -> None:
        """End as a killed process does: the broker notices, and publishes the will."""
        self._listener = None
        if self._is_up:
            self._is_up = False
            self._broker.bury(self)

    # --- the broker's side of the wire -------------------------------------------------------------------

    def lose(self, reason: str) -> None:
        """The connection is gone; try again after the back-off's pause."""
        if not self._is_up:
            return
        self._is_up = False
        now_s = self._broker.now_s
        self._backoff.session_ended(now_s - self._up_since_s)
        self._arm(max(now_s + self._backoff.next_delay_s(), self._rests_until_s))
        if self._listener is not None:
            self._listener.on_down(reason)

    def hear(self, connection: int, topic: str, payload: bytes, retained: bool) -> None:
        """A message came out of the wire."""
        if self._is_up and connection == self.connection and self._listener is not None:
            message = Message(topic=topic, payload=payload, retained=retained, acknowledge=_kept_nowhere)
            self._listener.on_message(message)

    def arrival_s(self, now_s: float, size: int, faults: Faults, rng: Random, *, inward: bool) -> float:
        """Return when a message put on this wire now comes out of it."""
        begin_s = now_s
        if faults.bytes_per_s:
            begin_s = max(now_s, self._free_s[inward]) + size / faults.bytes_per_s
            self._free_s[inward] = begin_s
        arrival_s = begin_s + rng.uniform(*faults.delay_s)
        if not faults.reordering:
            arrival_s = max(arrival_s, self._last_s[inward])
            self._last_s[inward] = arrival_s
        return arrival_s

    def _arm(self, due_s: float) -> None:
        self._due_s = due_s
        self._broker.at(due_s, lambda: self._try(due_s))

    def _try(self, due_s: float) -> None:
        if self._is_up or self._listener is None or due_s != self._due_s:
            return
        if not self._broker.connect(self):
            self._arm(self._broker.now_s + self._backoff.next_delay_s(was_answered=False))
            return
        self._up_since_s = self._broker.now_s
        self._is_up = True
        self.connection += 1
        self.last_will = self._make_will() if self._make_will else None
        for topic_filter in self.filters:
            self._broker.say_retained(self, topic_filter)
        self._listener.on_up()


def matches(topic_filter: str, topic: str) -> bool:
    """Decide whether a topic is within an MQTT filter with `+` and `#`."""
    wanted, parts = topic_filter.split("/"), topic.split("/")
    for index, part in enumerate(wanted):
        if part == "#":
            return True
        if index >= len(parts) or part not in ("+", parts[index]):
            return False
    return len(wanted) == len(parts)


def _kept_nowhere() -> None:
    """Acknowledge nothing: this broker forgets a message as soon as it is delivered."""
