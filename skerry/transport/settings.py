"""Where the broker is and how to reach it. Owns the settings struct and the reading of its address."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

import msgspec

from skerry.errors import SettingsError

_PORTS = {"mqtt": 1883, "mqtts": 8883}


class MqttSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How to reach the broker."""

    url: str = "mqtt://127.0.0.1:1883"  #: mqtt://host:port, or mqtts://host:port for TLS
    ca_file: str = ""  #: certificates that may vouch for the broker; empty: the system's
    cert_file: str = ""  #: this client's certificate, when the broker asks for one
    key_file: str = ""
    username: str = ""
    password_file: str = ""  #: file whose first line is the password
    keepalive_s: int = 20
    max_payload_bytes: int = 512 * 1024
    backoff_cap_s: float = 300.0
    connect_timeout_s: float = 10.0
    will_delay_s: int = 5
    adapter: Literal["paho", "paho-quickack"] = "paho"


class Address(msgspec.Struct, frozen=True):
    """A broker's address taken apart."""

    host: str
    port: int
    is_tls: bool


def parse_address(url: str) -> Address:
    """Take mqtt://host:port or mqtts://host:port apart.  Raises SettingsError that says what is wrong."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise SettingsError(f"broker url {url!r}: {error}") from error
    if parts.scheme not in _PORTS or not parts.hostname or parts.path.strip("/") or parts.query:
        raise SettingsError(f"broker url {url!r} is not mqtt://host:port or mqtts://host:port")
    if parts.username or parts.password:
        raise SettingsError("a broker url holds no user or password; use username and password_file")
    return Address(parts.hostname, port or _PORTS[parts.scheme], parts.scheme == "mqtts")


class _ClosedWhenRefused(ssl.SSLSocket):
    """Closes itself when the handshake fails; paho would leave that to the garbage collector."""

    def do_handshake(self, block: bool = False) -> None:
        try:
            super().do_handshake(block)
        except OSError:
            self.close()
            raise


def tls_context(settings: MqttSettings) -> ssl.SSLContext:
    """Return a context that checks the broker's certificate and name.  Raises OSError, ssl.SSLError."""
    for name in filter(None, (settings.ca_file, settings.cert_file, settings.key_file)):
        Path(name).read_bytes()  # unlike OpenSSL, its error names the file
    context = ssl.create_default_context(cafile=settings.ca_file or None)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.sslsocket_class = _ClosedWhenRefused
    if settings.cert_file:
        context.load_cert_chain(settings.cert_file, settings.key_file or None)
    return context


def read_password(settings: MqttSettings) -> str | None:
    """Return the first line of the password file, None without one.  Raises OSError."""
    if not settings.password_file:
        return None
    lines = Path(settings.password_file).read_text(encoding="utf-8").splitlines()
    return lines[0] if lines else ""
