"""Where a service may listen: addresses of its settings, taken apart and checked before anything is bound.

Owns the rule that nothing listens off loopback without TLS. Knows nothing of sockets and of HTTP.
"""

from __future__ import annotations

import ipaddress
from pathlib import Path

import msgspec

from skerry.errors import SettingsError


class UnixListener(msgspec.Struct, frozen=True, kw_only=True):
    """A Unix socket; its owner and group may connect."""

    path: Path
    mode: int = 0o660


class TlsFiles(msgspec.Struct, frozen=True, kw_only=True):
    """Where the certificate chain and key are (PEM). client_ca: clients must show a certificate of it."""

    certificate: Path
    key: Path
    client_ca: Path | None = None


class TcpListener(msgspec.Struct, frozen=True, kw_only=True):
    """A TCP address; port 0 takes a free one. setting: how messages name the port's setting."""

    host: str = "127.0.0.1"
    port: int = 0
    tls: TlsFiles | None = None
    setting: str = "http.port"


Listener = UnixListener | TcpListener


class AccessSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What TCP clients show, and are shown: a part of every service's `api` table."""

    token_file: str = ""  #: the token that TCP clients must send; empty: api-token in the data directory
    #: Certificate chain (PEM), needed with its key for a TCP address off loopback.
    tls_certificate: str = ""
    tls_key: str = ""  #: goes with tls_certificate
    client_ca: str = ""  #: clients must show a certificate of this CA

    def token_path(self, home: Path) -> Path:
        """Return the file with the token; home: the data directory."""
        return Path(self.token_file).expanduser() if self.token_file else home / "api-token"


def is_loopback(host: str) -> bool:
    """Decide whether host is the loopback's name or one of its addresses."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def parse_tcp(text: str, setting: str) -> tuple[str, int]:
    """Return (host, port) of `host:port`.  Raises SettingsError that names the setting."""
    host, _, port = text.rpartition(":")
    if not host or not port.isdigit() or int(port) > 65535:
        raise SettingsError(f"{setting} = {text!r} is not host:port, for example 127.0.0.1:8460")
    return host.strip("[]"), int(port)


def tcp_listener(address: str, access: AccessSettings, *, setting: str) -> TcpListener | None:
    """Return where TCP listens, None for an empty address.

    Raises SettingsError for a malformed address, and for one off loopback without TLS.
    """
    tls = _tls_files(access)
    if not address:
        return None
    host, port = parse_tcp(address, setting)
    if tls is None and not is_loopback(host):
        raise SettingsError(
            f"{setting} = {address!r} is not loopback and has no TLS: set api.tls_certificate and "
            "api.tls_key (clients then send the token), or listen on 127.0.0.1"
        )
    return TcpListener(host=host, port=port, tls=tls, setting=setting)


def _tls_files(access: AccessSettings) -> TlsFiles | None:
    if bool(access.tls_certificate) != bool(access.tls_key):
        raise SettingsError("api.tls_certificate and api.tls_key are given together or not at all")
    if not access.tls_certificate:
        return None
    return TlsFiles(
        certificate=Path(access.tls_certificate).expanduser(),
        key=Path(access.tls_key).expanduser(),
        client_ca=Path(access.client_ca).expanduser() if access.client_ca else None,
    )
