"""A transport of the network in memory whose listener is called on its own process's event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from skerry.transport.memory import MemoryBroker, MemoryTransport
from skerry.transport.port import Listener, Message, Transport, Will


class MortalTransport(Transport, Protocol):
    """A transport of a process that can be killed."""

    def die(self) -> None:
        """End as a killed process does."""
        ...


#: Makes a process's transport on its loop. The will is asked for at each connect.
Join = Callable[[asyncio.AbstractEventLoop, Callable[[], Will]], MortalTransport]


class LoopTransport(MemoryTransport):
    """A MemoryTransport for a process with an event loop, as the transport over MQTT is."""

    def __init__(
        self,
        network: MemoryBroker,
        loop: asyncio.AbstractEventLoop,
        *,
        client_id: str,
        will: Callable[[], Will] | None = None,
    ) -> None:
        """loop: where the listener is called."""
        super().__init__(network, client_id=client_id, will=will)
        self._loop = loop

    def start(self, listener: Listener) -> None:
        """See Transport."""
        super().start(_OnLoop(listener, self._loop))


class _OnLoop:
    """Hands what happens on to the loop."""

    def __init__(self, listener: Listener, loop: asyncio.AbstractEventLoop) -> None:
        self._listener, self._loop = listener, loop

    def on_up(self) -> None:
        """See Listener."""
        self._loop.call_soon(self._listener.on_up)

    def on_down(self, reason: str) -> None:
        """See Listener."""
        self._loop.call_soon(self._listener.on_down, reason)

    def on_message(self, message: Message) -> None:
        """See Listener."""
        self._loop.call_soon(self._listener.on_message, message)
