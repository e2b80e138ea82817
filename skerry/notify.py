"""Word to the service manager (systemd's notify protocol): ready, alive, stopping; else silent."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Mapping

log = logging.getLogger(__name__)


class ServiceManager:
    """Speaks to the manager that started this process, if one did."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        """environ: holds NOTIFY_SOCKET and WATCHDOG_USEC when a manager listens."""
        self._address = environ.get("NOTIFY_SOCKET", "")
        usec = environ.get("WATCHDOG_USEC", "")
        is_ours = environ.get("WATCHDOG_PID", "") in ("", str(os.getpid()))
        #: How often alive() should be said, seconds: half of what is allowed; None when nobody watches.
        self.alive_every_s = int(usec) / 2e6 if is_ours and usec.isdigit() and int(usec) else None
        self._has_complained = False

    def ready(self, status: str = "") -> None:
        """Say that the service does its work from now on."""
        self._say(f"READY=1\nSTATUS={status}" if status else "READY=1")

    def alive(self) -> None:
        """Say that the service is not stuck."""
        self._say("WATCHDOG=1")

    def stopping(self) -> None:
        """Say that the service stops in order."""
        self._say("STOPPING=1")

    def _say(self, text: str) -> None:
        """Send one datagram; a manager that is gone is no reason to stop, and is logged once."""
        if not self._address:
            return
        path = f"\0{self._address[1:]}" if self._address.startswith("@") else self._address
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sock:
                sock.sendto(text.encode(), path)
        except OSError as error:
            if not self._has_complained:
                log.warning("the service manager cannot be told: %s", error)
            self._has_complained = True
