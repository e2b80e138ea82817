"""A small synchronous HTTP client over a Unix socket or TCP, standard library only.

Owns the connection and turns problem documents into typed errors. Knows nothing of tasks.
"""

from __future__ import annotations

import http.client
import socket
import ssl
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, TypeVar
from urllib.parse import urlsplit

import msgspec

from skerry import errors
from skerry.decoding import MALFORMED
from skerry.endpoint import Endpoint
from skerry.problem import RULES, TYPE_PREFIX, Problem, ProblemError

T = TypeVar("T")
Body = bytes | BinaryIO | None
_GONE = (http.client.RemoteDisconnected, BrokenPipeError, ConnectionResetError, http.client.CannotSendRequest)


class HttpConnection:
    """One endpoint; connections are kept and used again. Threads may share it: each request has its own."""

    def __init__(self, endpoint: Endpoint, *, service: str, start_hint: str, timeout_s: float = 30.0) -> None:
        """service, start_hint: for the message when nothing listens.  Nothing is connected yet."""
        self._endpoint = endpoint
        self._service = service
        self._start_hint = start_hint
        self._timeout_s = timeout_s
        self._idle: deque[http.client.HTTPConnection] = deque()  # append and pop are atomic

    def request(
        self,
        method: str,
        path: str,
        *,
        body: Body = None,
        headers: Mapping[str, str] | None = None,
        wait_s: float = 0.0,
        may_repeat: bool = True,
    ) -> tuple[int, bytes]:
        """Return (status, body) of an answer below 400; a problem document is raised as its typed error.

        wait_s: how much longer than usual the answer may take.
        may_repeat: a kept connection that turns out closed is made anew and the request sent again.
        Raises ServiceUnreachable when nothing listens or the answer does not come.
        """
        kept = self._take()
        connection = kept or self._connect()
        try:
            return self._once(connection, method, path, body, headers, wait_s)
        except _GONE as error:
            if not (kept and may_repeat and not hasattr(body, "read")):
                raise self._unreachable(error) from error
        try:
            return self._once(self._connect(), method, path, body, headers, wait_s)
        except _GONE as error:
            raise self._unreachable(error) from error

    def json(self, kind: type[T], method: str, path: str, *, body: Body = None, wait_s: float = 0.0) -> T:
        """Return an answer's JSON as `kind`."""
        _, content = self.request(method, path, body=body, wait_s=wait_s)
        return decode(content, kind, self._service)

    @contextmanager
    def stream(self, path: str, *, wait_s: float = 0.0) -> Iterator[http.client.HTTPResponse]:
        """Open an answer that goes on, on a connection of its own without a time limit.

        wait_s: how much longer than usual its beginning may take.
        """
        connection = self._connect()
        try:
            if connection.sock is not None:
                connection.sock.settimeout(self._timeout_s + wait_s)
            connection.request("GET", path, headers=self._headers(None))
            response = connection.getresponse()
            if response.status >= 400:
                raise problem_error(response.status, response.read())
            if connection.sock is not None:
                connection.sock.settimeout(None)
            yield response
        except (OSError, http.client.HTTPException) as error:
            raise self._unreachable(error) from error
        finally:
            connection.close()

    def __enter__(self) -> HttpConnection:
        """Return the connection."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close."""
        self.close()

    def close(self) -> None:
        """Close the kept connections; the next request makes a new one."""
        while (connection := self._take()) is not None:
            connection.close()

    def _take(self) -> http.client.HTTPConnection | None:
        try:
            return self._idle.pop()
        except IndexError:
            return None

    def _once(
        self,
        connection: http.client.HTTPConnection,
        method: str,
        path: str,
        body: Body,
        headers: Mapping[str, str] | None,
        wait_s: float,
    ) -> tuple[int, bytes]:
        """One request and its answer; the connection is kept if it is still good, else closed."""
        is_good = False
        try:
            if connection.sock is not None:
                connection.sock.settimeout(self._timeout_s + wait_s)
            connection.request(method, path, body=body, headers=self._headers(headers))
            response = connection.getresponse()
            content = response.read()
            is_good = not response.will_close
        except _GONE:
            raise
        except (OSError, http.client.HTTPException) as error:
            raise self._unreachable(error) from error
        finally:
            if is_good:
                self._idle.append(connection)
            else:
                connection.close()
        if response.status >= 400:
            raise problem_error(response.status, content)
        return response.status, content

    def _connect(self) -> http.client.HTTPConnection:
        connection = _make(self._endpoint, self._timeout_s)
        try:
            connection.connect()
        except OSError as error:
            raise self._unreachable(error) from error
        return connection

    def _headers(self, more: Mapping[str, str] | None) -> dict[str, str]:
        token = self._endpoint.token
        return {**({"Authorization": f"Bearer {token}"} if token else {}), **(more or {})}

    def _unreachable(self, error: Exception) -> errors.ServiceUnreachable:
        where = f"no {self._service} listens on {self._endpoint}"
        if isinstance(error, PermissionError):
            return errors.ServiceUnreachable(
                f"{self._endpoint} may not be used by this user: join the group that owns the socket"
            )
        if isinstance(error, TimeoutError):
            return errors.ServiceUnreachable(f"the {self._service} on {self._endpoint} does not answer")
        if isinstance(error, ssl.SSLError):
            return errors.ServiceUnreachable(f"no TLS connection to {self._endpoint}: {error}")
        reasons = (FileNotFoundError, ConnectionRefusedError)
        why = "" if isinstance(error, reasons) else f" ({str(error) or type(error).__name__})"
        return errors.ServiceUnreachable(f"{where}{why}; start one with: {self._start_hint}")


class _UnixConnection(http.client.HTTPConnection):
    """HTTP over a Unix socket; the Host header says localhost."""

    def __init__(self, path: Path, timeout_s: float) -> None:
        super().__init__("localhost", timeout=timeout_s)
        self._path = path
        self._limit_s = timeout_s

    def connect(self) -> None:
        """Connect to the socket file."""
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self._limit_s)
        try:
            self.sock.connect(str(self._path))
        except OSError:
            self.close()
            raise


def _make(endpoint: Endpoint, timeout_s: float) -> http.client.HTTPConnection:
    if endpoint.socket is not None:
        return _UnixConnection(endpoint.socket, timeout_s)
    parts = urlsplit(endpoint.url or "")
    try:
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
    if parts.scheme not in ("http", "https") or not host:
        raise errors.SettingsError(f"{endpoint.url!r} is not a URL like http://127.0.0.1:8470")
    if parts.scheme == "http":
        return http.client.HTTPConnection(host, port, timeout=timeout_s)
    return http.client.HTTPSConnection(host, port, timeout=timeout_s, context=trusting(endpoint.ca))


def trusting(ca: Path | None) -> ssl.SSLContext:
    """Return a client's TLS context; ca: who may vouch for the server (PEM), None: the system's.

    Raises SettingsError when the file cannot be used.
    """
    try:
        return ssl.create_default_context(cafile=ca)
    except (OSError, ssl.SSLError) as error:
        raise errors.SettingsError(f"the CA file {ca} cannot be used: {error}") from error


def decode(content: bytes, kind: type[T], service: str) -> T:
    """Return JSON as `kind`.  Raises ServiceUnreachable: whatever answered is not that service."""
    try:
        return msgspec.json.decode(content, type=kind)
    except MALFORMED as error:
        raise errors.ServiceUnreachable(
            f"what answers there is no {service} of this version: {error}"
        ) from error


#: Problem name → the error class that carries only a message.
_CLASSES: dict[str, type[errors.SkerryError]] = {
    rule.name: kind
    for kind, rule in RULES.items()
    if issubclass(kind, errors.SkerryError)
    and kind.__init__ in (errors.SkerryError.__init__, errors.SpecError.__init__)
}


def problem_error(status: int, content: bytes) -> errors.SkerryError:
    """Return the typed error of a problem document; ProblemError where there is no class of its own."""
    try:
        shown = msgspec.json.decode(content, type=Problem)
    except MALFORMED:
        reason = http.client.responses.get(status, "unknown status")
        shown = Problem(
            status=status, title=reason, type=TYPE_PREFIX + "foreign", detail=f"HTTP {status} {reason}"
        )
    if shown.name == RULES[errors.QueueFull].name:
        return errors.QueueFull(shown.detail or shown.title, retry_after_s=shown.retry_after_s or 5.0)
    kind = _CLASSES.get(shown.name)
    if kind is errors.SpecError:
        return errors.SpecError(shown.detail or shown.title, field=shown.field)
    return ProblemError(shown) if kind is None else kind(shown.detail or shown.title)
