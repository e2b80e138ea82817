"""What the link asks of a transport. It moves bytes, and keeps nothing that may not be lost (law 2)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import msgspec


class Will(msgspec.Struct, frozen=True, kw_only=True):
    """What the broker publishes when the session dies without a word."""

    topic: str
    payload: bytes
    retain: bool = True


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """A message that arrived. `acknowledge` tells the transport that the application has it (idempotent)."""

    topic: str
    payload: bytes
    retained: bool
    acknowledge: Callable[[], None]


class Listener(Protocol):
    """Receives what happens on a transport; called on the owner's event loop, never on another thread."""

    def on_up(self) -> None:
        """The connection is there and every subscription is in place."""
        ...

    def on_down(self, reason: str) -> None:
        """The connection is gone; reason is for people."""
        ...

    def on_message(self, message: Message) -> None:
        """A message arrived."""
        ...


class Transport(Protocol):
    """A connection to a broker that is made again for ever until stopped."""

    def start(self, listener: Listener) -> None:
        """Begin connecting; returns at once, whether or not the broker is there."""
        ...

    def subscribe(self, topic_filter: str) -> None:
        """Ask for messages on a filter, now and after every reconnect."""
        ...

    def publish(self, topic: str, payload: bytes, *, retain: bool = False) -> None:
        """Hand over one message (QoS 1).  Raises NotConnected, Rejected (too large); never waits."""
        ...

    @property
    def is_up(self) -> bool:
        """There is a connection right now."""
        ...

    def wake(self) -> None:
        """Try to connect now, whatever the back-off says (the network came back)."""
        ...

    def hint(self, spread_s: float) -> None:
        """Draw no delay before a reconnect from less than this many seconds, as the coordinator asked."""
        ...

    def rest(self, for_s: float) -> None:
        """Stay away for so long once the present connection is lost; `wake` ends it."""
        ...

    def stop(self) -> None:
        """Disconnect in order and stop for good."""
        ...
