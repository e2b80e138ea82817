"""A small blocking HTTP client over a Unix socket: one kept connection, so that only the server is timed."""

from __future__ import annotations

import http.client
import json
import socket
from pathlib import Path
from typing import Any

from benchmarks.harness import BenchmarkError


class UnixHttp(http.client.HTTPConnection):
    """A connection to a service's socket. Use as a context manager's value or close() it."""

    def __init__(self, path: Path, *, timeout_s: float = 60.0) -> None:
        """path: the service's socket; it must exist when the first request is made."""
        super().__init__("localhost", timeout=timeout_s)
        self._path = path

    def connect(self) -> None:
        """Connect to the socket's path instead of a port."""
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self._path))

    def ask(self, method: str, target: str, body: bytes | None = None) -> Any:
        """Return the JSON answer.  Raises BenchmarkError with the service's words when it refuses."""
        status, text = self.ask_raw(method, target, body)
        if status >= 400:
            raise BenchmarkError(f"{method} {target}: {status} {text[:500].decode(errors='replace')}")
        return json.loads(text)

    def ask_raw(self, method: str, target: str, body: bytes | None = None) -> tuple[int, bytes]:
        """Return status and body of the answer."""
        headers = {"Content-Type": "application/json"} if body is not None else {}
        self.request(method, target, body=body, headers=headers)
        response = self.getresponse()
        return response.status, response.read()
