"""Telling the service manager how the agent is: ready, alive, stopping. Does nothing where there is none."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping


class ServiceManager:
    """Speaks the sd_notify protocol: datagrams to the socket that the environment names."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        """Read NOTIFY_SOCKET and WATCHDOG_USEC."""
        self._address = environ.get("NOTIFY_SOCKET", "")
        usec = environ.get("WATCHDOG_USEC", "")
        is_ours = environ.get("WATCHDOG_PID", "") in ("", str(os.getpid()))
        #: How often it wants to hear that the agent lives, seconds; None when it does not ask.
        self.watchdog_s = int(usec) / 1e6 / 2 if usec.isdigit() and int(usec) and is_ours else None

    def say(self, *lines: str) -> None:
        """Send lines such as READY=1; a manager that is gone is no reason to stop."""
        if not self._address:
            return
        address = "\0" + self._address[1:] if self._address.startswith("@") else self._address
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
            try:
                sender.sendto("\n".join(lines).encode(), address)
            except OSError:
                return
