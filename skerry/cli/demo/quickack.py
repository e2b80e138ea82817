"""A paho client for brokers that hold small packets back. For the demo's embedded broker alone.

Such a broker sends a second small packet only when the first is acknowledged, and the kernel delays that by
some 40 ms. TCP_QUICKACK acknowledges at once; the kernel forgets it, so it is set around each exchange.
"""

from __future__ import annotations

import socket
from typing import Any

import paho.mqtt.client as paho


class QuickAckClient(paho.Client):
    """Acknowledges what arrives on its socket at once."""

    def _sock_recv(self, bufsize: int) -> bytes:
        data = super()._sock_recv(bufsize)
        self._acknowledge_at_once()
        return data

    def _sock_send(self, buf: Any) -> int:
        self._acknowledge_at_once()
        return super()._sock_send(buf)

    def _acknowledge_at_once(self) -> None:
        sock = self.socket()
        if isinstance(sock, socket.socket):  # a TLS socket is one too; a websocket is not
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
