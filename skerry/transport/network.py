"""Word from the kernel that something about this machine's network has come up. Owns one netlink socket.

Linux says so to everybody who asks (rtnetlink(7)), but for sandboxes that forbid it. What happens beyond the
first router nobody here can see.
"""

from __future__ import annotations

import errno
import logging
import socket
import struct
from typing import Protocol

log = logging.getLogger("skerry.transport")

#: RTMGRP_LINK, and addresses and routes of IPv4 and IPv6.
_GROUPS = 0x1 | 0x10 | 0x40 | 0x100 | 0x400
_HEADER = struct.Struct("=IHHII")  # nlmsghdr: length, type, flags, sequence, port
_LINK = struct.Struct("=BxHiII")  # ifinfomsg: family, type, index, flags, change
_NEW_LINK, _NEW_ADDRESS, _NEW_ROUTE = 16, 20, 24
_RUNNING = 0x40  # IFF_RUNNING: the cable is in, the radio is associated


class Watch(Protocol):
    """What a transport asks of whoever watches the network."""

    def has_come_up(self) -> bool:
        """Say whether a link, an address or a route was gained since the last call; never waits."""
        ...

    def close(self) -> None:
        """Stop watching."""
        ...


class NetworkWatch:
    """Watches links, addresses and routes. Where that is not allowed it sees nothing, and says so once."""

    def __init__(self) -> None:
        """Begin to watch."""
        self._socket: socket.socket | None = None
        try:
            self._socket = _listening()
        except OSError as error:
            log.info("a return of the network will be noticed by trying alone: %s", error.strerror)

    def has_come_up(self) -> bool:
        """See Watch."""
        has_come_up = False
        while (news := self._read()) is not None:
            has_come_up = has_come_up or not news or _is_gain(news)
        return has_come_up

    def close(self) -> None:
        """See Watch."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _read(self) -> bytes | None:
        """Return what was said next, nothing at all when too much was said to keep, None at its end."""
        if self._socket is None:
            return None
        try:
            return self._socket.recv(65536)
        except BlockingIOError:
            return None
        except OSError as error:
            if error.errno == errno.ENOBUFS:  # the kernel dropped some
                return b""
            self.close()  # an error that stays would be read without end
            return None


def _listening() -> socket.socket:
    kind = socket.SOCK_RAW | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC
    watching = socket.socket(socket.AF_NETLINK, kind, socket.NETLINK_ROUTE)
    try:
        watching.bind((0, _GROUPS))
    except OSError:
        watching.close()
        raise
    return watching


def _is_gain(news: bytes) -> bool:
    """Decide whether any of the messages in one datagram tells of something new that can carry packets."""
    at = 0
    while at + _HEADER.size <= len(news):
        length, kind, *_ = _HEADER.unpack_from(news, at)
        if kind in (_NEW_ADDRESS, _NEW_ROUTE) or (kind == _NEW_LINK and _is_running(news, at + _HEADER.size)):
            return True
        at += max(_HEADER.size, (length + 3) & ~3)
    return False


def _is_running(news: bytes, at: int) -> bool:
    return len(news) >= at + _LINK.size and bool(_LINK.unpack_from(news, at)[3] & _RUNNING)
