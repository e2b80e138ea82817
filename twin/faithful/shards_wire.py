"""What passes between the processes of one world: a node's transport at one end, its stand-in at the other.

Owns the translation. Everything takes as long as the shortest wire, so that both ends can be a little apart
in time and still agree on the order of what happens.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, NamedTuple

from skerry.errors import NotConnected, Rejected
from skerry.transport.memory import MemoryBroker, MemoryTransport
from skerry.transport.port import Listener, Message, Will
from twin.faithful.world import World

#: Nothing gets from one process into another in less, seconds.
LOOKAHEAD_S = 0.001


class Parcel(NamedTuple):
    """One thing that passes. life: which process of the node; an older one's is not heard."""

    at_s: float
    client_id: str
    life: int
    what: str
    content: Any = None


class Port:
    """A worker's end: what its nodes say goes out, and what comes in is heard at its moment."""

    def __init__(self, world: World, *, max_payload_bytes: int) -> None:
        """max_payload_bytes: of one message, as at the broker."""
        self.world = world
        self.max_payload_bytes = max_payload_bytes
        self.out: list[Parcel] = []
        self._lives: dict[str, FarTransport] = {}
        self._life = 0

    def say(self, client_id: str, life: int, what: str, content: Any = None) -> None:
        """Put something on its way."""
        self.out.append(Parcel(self.world.now_s() + LOOKAHEAD_S, client_id, life, what, content))

    def join(self, client_id: str, loop: asyncio.AbstractEventLoop, will: Callable[[], Will]) -> FarTransport:
        """Return a transport for a node's new process."""
        self._life += 1
        transport = self._lives[client_id] = FarTransport(self, client_id, self._life, loop, will)
        return transport

    def take(self, parcels: Iterable[Parcel]) -> None:
        """Have each parcel heard when it arrives."""
        for parcel in parcels:
            self.world.network.at(parcel.at_s, partial(self._hear, parcel))

    def _hear(self, parcel: Parcel) -> None:
        transport = self._lives.get(parcel.client_id)
        if transport is not None and transport.life == parcel.life:
            transport.hear(parcel)


class FarTransport:
    """A node's transport whose broker is in another process. A MortalTransport."""

    def __init__(
        self,
        port: Port,
        client_id: str,
        life: int,
        loop: asyncio.AbstractEventLoop,
        will: Callable[[], Will],
    ) -> None:
        """will: asked for whenever there is no connection, for the next one."""
        self.life = life
        self._say = partial(port.say, client_id, life)
        self._most_bytes = port.max_payload_bytes
        self._loop, self._will = loop, will
        self._listener: Listener | None = None
        self._is_up = False

    def start(self, listener: Listener) -> None:
        """See Transport."""
        self._listener = listener
        self._say("start", self._will())

    def subscribe(self, topic_filter: str) -> None:
        """See Transport."""
        self._say("subscribe", topic_filter)

    def publish(self, topic: str, payload: bytes, *, retain: bool = False) -> None:
        """See Transport. What is on its way when the connection breaks is lost, as on any wire."""
        if len(payload) > self._most_bytes:
            raise Rejected(f"a message of {len(payload)} bytes on {topic}")
        if not self._is_up:
            raise NotConnected("there is no connection to the broker in memory")
        self._say("publish", (topic, payload, retain))

    @property
    def is_up(self) -> bool:
        """See Transport."""
        return self._is_up

    def wake(self) -> None:
        """See Transport."""
        self._say("wake")

    def hint(self, spread_s: float) -> None:
        """See Transport."""
        self._say("hint", spread_s)

    def rest(self, for_s: float) -> None:
        """See Transport."""
        self._say("rest", for_s)

    def stop(self) -> None:
        """See Transport."""
        self._listener, self._is_up = None, False
        self._say("stop")

    def die(self) -> None:
        """See MortalTransport."""
        self._listener, self._is_up = None, False
        self._say("die")

    def hear(self, parcel: Parcel) -> None:
        """Hand what the broker's side says on to the loop."""
        listener = self._listener
        if listener is None:
            return
        if parcel.what == "message":
            topic, payload, retained = parcel.content
            if self._is_up:
                message = Message(topic=topic, payload=payload, retained=retained, acknowledge=_kept_nowhere)
                self._loop.call_soon(listener.on_message, message)
        elif parcel.what == "up":
            self._is_up = True
            self._loop.call_soon(listener.on_up)
        else:
            self._is_up = False
            self._say("will", self._will())
            self._loop.call_soon(listener.on_down, parcel.content)


class Exchange:
    """The broker's end: each process of a far node has a stand-in here, which does as it is told."""

    def __init__(self, network: MemoryBroker) -> None:
        """network: the world's one."""
        self.network = network
        self.out: list[Parcel] = []
        self._lives: dict[tuple[str, int], _StandIn] = {}

    def take(self, parcels: Iterable[Parcel]) -> None:
        """Have each parcel dealt with when it arrives."""
        for parcel in parcels:
            self.network.at(parcel.at_s, partial(self._deal_with, parcel))

    def say(self, client_id: str, life: int, what: str, content: Any = None) -> None:
        """Put something on its way to a node."""
        self.out.append(Parcel(self.network.now_s + LOOKAHEAD_S, client_id, life, what, content))

    def _deal_with(self, parcel: Parcel) -> None:
        key = (parcel.client_id, parcel.life)
        stand_in = self._lives.get(key)
        if stand_in is None:
            stand_in = self._lives[key] = _StandIn(self, parcel.client_id, parcel.life)
        stand_in.do(parcel.what, parcel.content)
        if parcel.what in ("stop", "die"):
            del self._lives[key]


class _StandIn:
    """One process of a far node, at the broker. A Listener."""

    def __init__(self, exchange: Exchange, client_id: str, life: int) -> None:
        self._say = partial(exchange.say, client_id, life)
        self._network = exchange.network
        self._will: Will | None = None
        self._transport = MemoryTransport(exchange.network, client_id=client_id, will=self._last_will)

    def do(self, what: str, content: Any) -> None:
        """Do what the node's process did to its transport."""
        match what:
            case "start":
                self._will = content
                self._transport.start(self)
            case "will":
                self._will = content
            case "publish":
                self._publish(*content)
            case "subscribe" | "hint" | "rest":
                getattr(self._transport, what)(content)
            case "wake" | "stop" | "die":
                getattr(self._transport, what)()
            case _:
                raise ValueError(f"a node's process cannot do {what!r}")

    def _publish(self, topic: str, payload: bytes, retain: bool) -> None:
        if self._transport.is_up:
            self._transport.publish(topic, payload, retain=retain)
        else:
            self._network.dropped += 1

    def _last_will(self) -> Will:
        assert self._will is not None  # it came with the start
        return self._will

    def on_up(self) -> None:
        """See Listener."""
        self._say("up")

    def on_down(self, reason: str) -> None:
        """See Listener."""
        self._say("down", reason)

    def on_message(self, message: Message) -> None:
        """See Listener."""
        self._say("message", (message.topic, message.payload, message.retained))


def _kept_nowhere() -> None:
    """Acknowledge nothing: the broker in memory forgets a message as soon as it is delivered."""
