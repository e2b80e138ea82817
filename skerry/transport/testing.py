"""The testing kit of transports: a listener that keeps what it hears and acknowledges all of it."""

from __future__ import annotations

from skerry.transport.port import Message


class Recorder:
    """A listener that keeps what it hears."""

    def __init__(self) -> None:
        """Hear nothing yet."""
        self.ups = 0
        self.downs: list[str] = []
        self.messages: list[Message] = []

    def on_up(self) -> None:
        """See Listener."""
        self.ups += 1

    def on_down(self, reason: str) -> None:
        """See Listener."""
        self.downs.append(reason)

    def on_message(self, message: Message) -> None:
        """See Listener."""
        self.messages.append(message)
        message.acknowledge()

    def payloads(self) -> list[bytes]:
        """What the messages held, in order."""
        return [message.payload for message in self.messages]
