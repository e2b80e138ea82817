"""Listening and stopping: addresses that cannot be had, left-over sockets, exposure, order at the end."""

from __future__ import annotations

import datetime
import ipaddress
import secrets
import socket
import ssl
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from skerry.errors import SettingsError
from skerry.metrics import Metrics
from skerry.web import (
    Access,
    TcpListener,
    TlsFiles,
    UnixListener,
    build_app,
    read_or_make_token,
    read_token,
)
from skerry.web.listeners import bind
from skerry.web.testing import ServerThread

Service = Any
ACCESS = Access(tokens=("t",))


def an_app() -> web.Application:
    return build_app((), title="t", version="1", access=ACCESS, metrics=Metrics("t"))


def test_a_port_in_use_is_named_with_what_to_do() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]

        with pytest.raises(SettingsError, match=rf"port {port} on 127.0.0.1 is in use.*api\.tcp"):
            bind(TcpListener(port=port, setting="api.tcp"), ACCESS)


def test_when_one_listener_cannot_be_had_none_stays_open(tmp_path: Path) -> None:
    path = tmp_path / "s.sock"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        listeners = [UnixListener(path=path), TcpListener(port=taken.getsockname()[1])]

        with pytest.raises(SettingsError, match="is in use"):
            ServerThread(an_app, listeners)

    assert not path.exists()


def test_the_socket_of_a_dead_process_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "s.sock"
    with socket.socket(socket.AF_UNIX) as left_over:
        left_over.bind(str(path))

    with ServerThread(an_app, [UnixListener(path=path)]):
        assert path.is_socket()

    assert not path.exists()


def test_the_socket_of_a_live_process_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "s.sock"
    with ServerThread(an_app, [UnixListener(path=path)]):
        with pytest.raises(SettingsError, match="another process listens on"):
            ServerThread(an_app, [UnixListener(path=path)])

        # A whole request: the probe's connection, which came before it, is dealt with by then.
        with socket.socket(socket.AF_UNIX) as peer:
            peer.connect(str(path))
            peer.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            assert peer.recv(4096).startswith(b"HTTP/1.1 200 ")


def test_a_file_in_the_sockets_place_is_never_removed(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("mine")

    with pytest.raises(SettingsError, match="is not a socket"):
        bind(UnixListener(path=path), ACCESS)

    assert path.read_text() == "mine"


def test_a_socket_path_too_long_for_the_kernel_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="longer than 107 bytes"):
        bind(UnixListener(path=tmp_path / ("d" * 100) / "s.sock"), ACCESS)


def test_a_missing_directory_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="No such file or directory"):
        bind(UnixListener(path=tmp_path / "gone" / "s.sock"), ACCESS)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1"])
def test_nothing_listens_off_loopback_without_tls(host: str) -> None:
    with pytest.raises(SettingsError, match="has no TLS"):
        bind(TcpListener(host=host), ACCESS)


def test_nothing_listens_off_loopback_without_authentication(tmp_path: Path) -> None:
    tls = a_certificate(tmp_path)

    with pytest.raises(SettingsError, match="give a token or a CA"):
        bind(TcpListener(host="0.0.0.0", tls=tls), Access())


def test_tls_serves_with_the_certificate_given(tmp_path: Path) -> None:
    tls = a_certificate(tmp_path)
    with ServerThread(an_app, [TcpListener(tls=tls)]) as thread:
        context = ssl.create_default_context(cafile=str(tls.certificate))

        with urllib.request.urlopen(f"{thread.addresses[0]}/healthz", context=context, timeout=20) as answer:
            assert answer.status == 200

    assert thread.addresses[0].startswith("https://")


def test_a_client_certificate_stands_for_a_token(tmp_path: Path) -> None:
    files = a_certificate(tmp_path)
    listener = TcpListener(
        tls=TlsFiles(certificate=files.certificate, key=files.key, client_ca=files.certificate)
    )

    def without_tokens() -> web.Application:
        return build_app((), title="t", version="1", access=Access(), metrics=Metrics("t"))

    with ServerThread(without_tokens, [listener, TcpListener()]) as thread:
        secure, plain = thread.addresses
        context = ssl.create_default_context(cafile=str(files.certificate))
        with pytest.raises(OSError, match=r"(?i)certificate|reset|closed|broken pipe"):
            urllib.request.urlopen(f"{secure}/metrics", context=context, timeout=20).read()
        context.load_cert_chain(files.certificate, files.key)
        with urllib.request.urlopen(f"{secure}/metrics", context=context, timeout=20) as answer:
            assert answer.status == 200
        with pytest.raises(urllib.error.HTTPError, match="401") as refused:
            urllib.request.urlopen(f"{plain}/metrics", timeout=20)
        refused.value.close()


def test_a_broken_certificate_is_named(tmp_path: Path) -> None:
    broken = tmp_path / "c.pem"
    broken.write_text("nonsense")

    with pytest.raises(SettingsError, match=r"c\.pem.*cannot be used"):
        bind(TcpListener(tls=TlsFiles(certificate=broken, key=broken)), ACCESS)


def test_a_stop_ends_requests_that_wait_and_refuses_new_ones(service: Service) -> None:
    answers: list[int] = []
    asking = threading.Thread(target=lambda: answers.append(service.ask("GET", "/v1/wait")[0]))
    asking.start()
    deadline = time.monotonic() + 20
    while not _is_waiting(service):
        assert time.monotonic() < deadline
        time.sleep(0.002)  # a real socket: nothing here runs on a virtual clock

    service.thread.stop()
    asking.join(20)

    assert answers == [200]
    with pytest.raises(OSError, match="refused"):
        service.ask("GET", "/healthz")
    assert not service.sock.exists()


def _is_waiting(service: Service) -> bool:
    """Whether the server has a second connection, the one that waits."""
    return len(service.thread.do(lambda: list(service.thread.server._runner.server.connections))) > 0


def test_a_token_is_made_once_and_is_private(tmp_path: Path) -> None:
    path = tmp_path / "api-token"

    token = read_or_make_token(path)

    assert len(token) >= 43
    assert path.stat().st_mode & 0o777 == 0o600
    assert read_or_make_token(path) == token


def test_a_start_that_ends_while_the_token_is_made_leaves_no_empty_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "api-token"

    def killed(descriptor: int) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(secrets, "token_urlsafe", killed)
        with pytest.raises(KeyboardInterrupt):
            read_or_make_token(path)

    assert len(read_or_make_token(path)) >= 43


def test_a_token_that_everybody_can_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "api-token"
    path.write_text("abc\n")
    path.chmod(0o644)

    with pytest.raises(SettingsError, match="chmod 600"):
        read_token(path)


def test_an_empty_token_lets_nobody_in(tmp_path: Path) -> None:
    path = tmp_path / "api-token"
    path.write_text("\n")
    path.chmod(0o600)

    with pytest.raises(SettingsError, match="is empty"):
        read_or_make_token(path)


def a_certificate(directory: Path) -> TlsFiles:
    """A self-signed certificate for 127.0.0.1 with its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "test")])
    now = datetime.datetime.now(datetime.UTC)
    built = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False
        )
        .sign(key, hashes.SHA256())
    )
    certificate, private = directory / "c.crt", directory / "c.key"
    certificate.write_bytes(built.public_bytes(serialization.Encoding.PEM))
    private.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return TlsFiles(certificate=certificate, key=private)
