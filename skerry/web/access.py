"""Who may speak to a listener: file permissions on a Unix socket; on TCP a Host check and a bearer token."""

from __future__ import annotations

import hmac
import ipaddress
import secrets
import socket
from pathlib import Path

import msgspec
from aiohttp import web

from skerry.durable import write_whole
from skerry.errors import SettingsError
from skerry.problem import problem


class Access(msgspec.Struct, frozen=True, kw_only=True):
    """What TCP clients must show. A Unix socket's permissions say who may connect to it.

    tokens: any one of them is enough. Without any, TCP needs a client certificate (TLS with a client CA).
    hosts: names beside localhost and IP addresses that a Host header may carry (those in the certificate).
    """

    tokens: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()

    def check(self, request: web.Request, *, is_open: bool) -> None:
        """Let the request through or raise the problem 421 (Host) or 401 (token)."""
        if is_unix(request):
            return
        if not self._serves(request.headers.get("Host", "")):
            raise problem(
                421, "the Host header names another host: use 127.0.0.1, localhost or the configured name"
            )
        if not is_open and not self._may_enter(request):
            raise problem(
                401, "send the header `Authorization: Bearer <token>` with the token of this service"
            )

    def _serves(self, host: str) -> bool:
        name = host_name(host)
        return name == "localhost" or is_address(name) or name in {known.lower() for known in self.hosts}

    def _may_enter(self, request: web.Request) -> bool:
        if not any(self.tokens):
            return has_certificate(request)
        return self._has_token(request.headers.get("Authorization", ""))

    def _has_token(self, header: str) -> bool:
        scheme, _, given = header.partition(" ")
        shown = given.strip().encode()
        # Every token is compared, in constant time, so that the answer's time tells nothing.
        matches = [hmac.compare_digest(token.encode(), shown) for token in self.tokens if token]
        return scheme.lower() == "bearer" and any(matches)


def is_unix(request: web.Request) -> bool:
    """Decide whether the request came through a Unix socket."""
    peer: socket.socket | None = request.get_extra_info("socket")
    return peer is not None and peer.family == socket.AF_UNIX


def is_address(name: str) -> bool:
    """Decide whether name is an IP address: a page that re-binds its own name cannot send one as Host."""
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def has_certificate(request: web.Request) -> bool:
    """Decide whether the client showed a certificate (TLS has verified it against the client CA)."""
    return bool(request.get_extra_info("peercert"))


def host_name(host: str) -> str:
    """Return a Host header's name without its port, lower case; an IPv6 address without its brackets."""
    if host.startswith("["):
        return host[1:].partition("]")[0].lower()
    return host.partition(":")[0].lower()


def read_or_make_token(path: Path) -> str:
    """Return the token kept in the file, making one (256 random bits, mode 0600) when there is none.

    Raises SettingsError when the file is empty, cannot be read or can be read by others.
    """
    try:
        if not path.exists():
            write_whole(path, f"{secrets.token_urlsafe(32)}\n".encode(), replace=False)
    except OSError as error:
        raise SettingsError(f"the token file {path} cannot be made: {error.strerror}") from error
    return read_token(path)


def read_token(path: Path) -> str:
    """Return the token kept in the file.  Raises SettingsError when it is missing, empty or open to all."""
    try:
        token = path.read_text(encoding="ascii").strip()
        if path.stat().st_mode & 0o007:
            raise SettingsError(f"the token file {path} can be read by every user: chmod 600 {path}")
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(
            f"the token file {path} cannot be read: {getattr(error, 'strerror', error)}"
        ) from error
    if not token:
        raise SettingsError(
            f"the token file {path} is empty: delete it, and a new token is made at the next start"
        )
    return token
