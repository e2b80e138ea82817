"""Binds listeners: Unix sockets with their permissions, TCP with or without TLS.

Owns what may go wrong there. Off loopback nothing listens without TLS and a token.
"""

from __future__ import annotations

import errno
import os
import socket
import ssl
import stat
from pathlib import Path

import msgspec

from skerry.errors import SettingsError
from skerry.listening import Listener, TcpListener, TlsFiles, UnixListener, is_loopback
from skerry.web.access import Access

BACKLOG = 128
#: The kernel's limit of a Unix socket's path, bytes (sun_path less its closing zero).
UNIX_PATH_LIMIT = 107


class Bound(msgspec.Struct, frozen=True, kw_only=True):
    """A bound, listening socket with the address to tell people."""

    sock: socket.socket
    address: str
    tls: ssl.SSLContext | None = None
    port: int = 0
    unix_path: Path | None = None


def bind(listener: Listener, access: Access) -> Bound:
    """Bind and listen.  Raises SettingsError that names the address and says what to do."""
    if isinstance(listener, UnixListener):
        return Bound(sock=_bind_unix(listener), address=f"unix:{listener.path}", unix_path=listener.path)
    _check_exposure(listener, access)
    context = tls_context(listener.tls) if listener.tls else None
    sock = _bind_tcp(listener)
    port = int(sock.getsockname()[1])
    host = f"[{listener.host}]" if ":" in listener.host else listener.host
    return Bound(
        sock=sock, address=f"{'https' if context else 'http'}://{host}:{port}", tls=context, port=port
    )


def _check_exposure(listener: TcpListener, access: Access) -> None:
    if is_loopback(listener.host):
        return
    if listener.tls is None:
        raise SettingsError(
            f"{listener.host} is not loopback and has no TLS: give a certificate and key, or use 127.0.0.1"
        )
    if not any(access.tokens) and listener.tls.client_ca is None:
        raise SettingsError(f"{listener.host} is not loopback: give a token or a CA for client certificates")


def tls_context(files: TlsFiles) -> ssl.SSLContext:
    """Return a server context, TLS 1.2 or newer.  Raises SettingsError that names the file at fault."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(files.certificate, files.key)
    except (OSError, ssl.SSLError) as error:
        raise SettingsError(
            f"the certificate {files.certificate} and key {files.key} cannot be used: {error}"
        ) from error
    if files.client_ca is not None:
        try:
            context.load_verify_locations(files.client_ca)
        except (OSError, ssl.SSLError) as error:
            raise SettingsError(f"the CA file {files.client_ca} cannot be used: {error}") from error
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def _bind_tcp(listener: TcpListener) -> socket.socket:
    try:
        family, kind, proto, _, address = socket.getaddrinfo(
            listener.host, listener.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except socket.gaierror as error:
        raise SettingsError(f"{listener.host} is not an address of this machine: {error.strerror}") from error
    sock = socket.socket(family, kind, proto)
    sock.setblocking(False)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind(address)
        sock.listen(BACKLOG)
    except OSError as error:
        sock.close()
        raise SettingsError(_why_not(listener, error)) from error
    return sock


def _why_not(listener: TcpListener, error: OSError) -> str:
    where = f"port {listener.port} on {listener.host}"
    if error.errno == errno.EADDRINUSE:
        return (
            f"{where} is in use: stop its owner (`ss -ltnp sport = :{listener.port}` names it), "
            f"or set {listener.setting} to another port (0 takes a free one)"
        )
    if error.errno == errno.EACCES:
        return f"{where} is not allowed for this user: set {listener.setting} to a port above 1023"
    return f"{where} cannot be used: {error.strerror}"


def _bind_unix(listener: UnixListener) -> socket.socket:
    path = listener.path
    if len(os.fsencode(path)) > UNIX_PATH_LIMIT:
        raise SettingsError(
            f"the socket's path {path} is longer than {UNIX_PATH_LIMIT} bytes: choose a shorter one"
        )
    _clear_stale(path)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    sock.setblocking(False)
    try:
        os.fchmod(
            sock.fileno(), listener.mode
        )  # before bind: the file never has wider permissions than these
        sock.bind(str(path))
        path.chmod(listener.mode)  # bind() left out what the umask hides
        sock.listen(BACKLOG)
    except OSError as error:
        sock.close()
        raise SettingsError(f"the socket {path} cannot be made: {error.strerror}") from error
    return sock


def _clear_stale(path: Path) -> None:
    """Remove the socket of a process that is gone; refuse one that answers, and what is no socket."""
    try:
        is_socket = stat.S_ISSOCK(path.lstat().st_mode)
    except FileNotFoundError:
        return
    except OSError as error:
        raise SettingsError(f"the socket {path} cannot be made: {error.strerror}") from error
    if not is_socket:
        raise SettingsError(f"{path} exists and is not a socket: move it away, or choose another path")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(str(path))
        except (ConnectionRefusedError, FileNotFoundError):
            path.unlink(missing_ok=True)
            return
        except OSError as error:
            raise SettingsError(
                f"the socket {path} is there and cannot be reached: {error.strerror or error}"
            ) from error
    raise SettingsError(f"another process listens on {path}: stop it first, or choose another path")
