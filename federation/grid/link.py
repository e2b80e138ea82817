"""The worker's end of its channel to the coordinator: one request at a time over a Unix socket."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import TypeVar

from federation.rounds.channel import Answer, ChannelClosed, Failed, Request, answer_of, frame, length_of
from skerry.errors import FederationError

A = TypeVar("A", bound=Answer)


class Link:
    """Asks the coordinator. Not for several threads."""

    def __init__(self, path: Path) -> None:
        """Connect.  Raises ChannelClosed when nobody listens."""
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._socket.connect(str(path))
        except OSError as error:
            self._socket.close()
            raise ChannelClosed(f"{path} cannot be reached: {error.strerror}") from error

    def close(self) -> None:
        """Leave."""
        self._socket.close()

    def ask(self, request: Request, kind: type[A]) -> A:
        """Return the answer, whenever it comes.

        Raises ChannelClosed when the coordinator is gone or cannot do it now (a later worker asks again),
        FederationError when it never will.
        """
        try:
            self._socket.sendall(frame(request))
            answer = answer_of(self._read(length_of(self._read(4))))
        except OSError as error:
            raise ChannelClosed(f"the coordinator is gone: {error.strerror}") from error
        if isinstance(answer, Failed):
            raise (ChannelClosed if answer.is_passing else FederationError)(answer.reason)
        if not isinstance(answer, kind):
            raise FederationError(f"asked for {kind.__name__}, the coordinator said {type(answer).__name__}")
        return answer

    def _read(self, size: int) -> bytes:
        got = bytearray()
        while len(got) < size:
            chunk = self._socket.recv(min(size - len(got), 1 << 20))
            if not chunk:
                raise ChannelClosed("the coordinator has closed the run's channel")
            got += chunk
        return bytes(got)
