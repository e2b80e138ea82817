"""Entry of an executor child: `python -m devices.executors.child FD PARENT`.

Owns its start and its end of the channel.

FD is its end of the channel, PARENT the agent's process id. It imports a runtime only once Load says which.
"""

from __future__ import annotations

import os
import socket
import sys
import threading
from collections.abc import Iterator

from devices.executors.channel import (
    ChannelError,
    Fault,
    FromChild,
    Heartbeat,
    Load,
    ToChild,
    child_decoder,
    encode,
)
from devices.executors.kernel import die_with_parent

_RECEIVE_BYTES = 1 << 16


class ChildChannel:
    """The child's end: blocking, and safe to send on from several threads."""

    def __init__(self, end: socket.socket) -> None:
        """Own the socket."""
        self.socket = end
        self._sending = threading.Lock()
        self._decoder = child_decoder()
        self._waiting: list[ToChild] = []

    def send(self, message: FromChild) -> None:
        """Send message; when nobody listens any more, end this process."""
        frame = encode(message)
        with self._sending:
            try:
                self.socket.sendall(frame)
            except OSError:
                os._exit(0)

    def receive(self) -> ToChild | None:
        """Return the next message, None when the agent closed the channel.  Raises ChannelError."""
        while not self._waiting:
            data = self.socket.recv(_RECEIVE_BYTES)
            if not data:
                return None
            self._waiting = self._decoder.feed(data)
        return self._waiting.pop(0)

    def messages(self) -> Iterator[ToChild]:
        """Yield messages until the agent closes the channel."""
        while (message := self.receive()) is not None:
            yield message


def serve(channel: ChildChannel, load: Load, parent: int) -> None:
    """Run the executor that load names until the agent closes the channel."""
    if load.kind == "onnx":
        from devices.executors.inference import serve_inference

        serve_inference(channel, load)
    elif load.kind == "command":
        from devices.executors.commands import serve_commands

        serve_commands(channel, load, parent)
    else:
        channel.send(Fault(reason=f"no executor {load.kind!r} in this version"))


def main(argv: list[str]) -> None:
    """Start with the arguments FD and PARENT."""
    descriptor, parent = int(argv[1]), int(argv[2])
    die_with_parent(parent)
    os.set_inheritable(descriptor, False)
    channel = ChildChannel(socket.socket(fileno=descriptor))
    load = channel.receive()
    if not isinstance(load, Load):
        raise ChannelError("the first message was not Load")
    os.nice(load.nice)
    channel.send(Heartbeat(ready=False))
    try:
        serve(channel, load, parent)
    except (ImportError, OSError) as error:
        channel.send(Fault(reason=f"{load.kind}: {error}"))
    # No clean-up of the interpreter: a runtime's destructors can hang, and nothing here outlives the process.
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv)
