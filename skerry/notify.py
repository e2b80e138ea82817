"""Word to the service manager (systemd's notify protocol): ready, alive, stopping; else silent."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Mapping

log = logging.getLogger(__name__)


class ServiceManager:
    """Speaks to the manager that started this process, if one did."""

    def __init__(self, environ: Mapping[str, str] | None = None) -> None:
        """environ: holds NOTIFY_SOCKET and WATCHDOG_USEC when a manager listens."""
        given = os.environ if environ is None else environ
        self._address = given.get("NOTIFY_SOCKET", "")
        usec = given.get("WATCHDOG_USEC", "")
        #: How often alive() should be said, seconds; None when nobody watches.
        self.alive_every_s = int(usec) / 2e6 if usec.isdigit() else None

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
        if not self._address:
            return
        path = f"\0{self._address[1:]}" if self._address.startswith("@") else self._address
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sock:
                sock.connect(path)
                sock.sendall(text.encode())
        except OSError as error:
            log.warning("the service manager cannot be told: %s", error)
