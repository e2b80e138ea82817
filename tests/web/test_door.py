"""Clients that take too much: connections without end, requests that never end. Others are still served."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

from skerry.metrics import Metrics
from skerry.web import Access, UnixListener, build_app
from skerry.web.testing import ServerThread

ASK = b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"


@contextmanager
def serving(home: Path, *, limit: int, head_timeout_s: float) -> Iterator[Path]:
    path = home / "s.sock"
    app = lambda: build_app((), title="Door", version="1", access=Access(), metrics=Metrics("door"))  # noqa: E731
    with ServerThread(app, [UnixListener(path=path)], limit=limit, head_timeout_s=head_timeout_s):
        yield path


def connect(path: Path) -> socket.socket:
    peer = socket.socket(socket.AF_UNIX)
    peer.settimeout(20)
    peer.connect(str(path))
    return peer


def ask(path: Path) -> bytes:
    with connect(path) as peer:
        with suppress(BrokenPipeError):  # refused before it could ask: the reason is there to read
            peer.sendall(ASK)
        return b"".join(iter(lambda: peer.recv(65536), b""))


def served_at_last(path: Path) -> bytes:
    deadline = time.monotonic() + 20
    while not (answer := ask(path)).startswith(b"HTTP/1.1 200"):
        assert time.monotonic() < deadline, answer
        time.sleep(0.02)  # real sockets: that one was closed reaches the server when it does
    return answer


def test_one_connection_too_many_is_told_so_and_served_when_another_has_left(tmp_path: Path) -> None:
    with serving(tmp_path, limit=10, head_timeout_s=600) as path, ExitStack() as held:
        for _ in range(10):
            peer = held.enter_context(connect(path))
            peer.sendall(ASK.replace(b"close", b"keep-alive"))
            assert peer.recv(65536).startswith(b"HTTP/1.1 200")  # it is counted now

        head, _, body = ask(path).partition(b"\r\n\r\n")

        assert head.startswith(b"HTTP/1.1 503")
        assert b"Retry-After:" in head
        assert "10 connections are open" in json.loads(body)["detail"]
        held.close()
        served_at_last(path)


@pytest.mark.parametrize("said", [b"", b"GET /heal"], ids=["nothing", "half a request"])
def test_a_client_that_does_not_say_what_it_wants_is_hung_up_on(tmp_path: Path, said: bytes) -> None:
    with serving(tmp_path, limit=1, head_timeout_s=0.2) as path, connect(path) as slow:
        slow.sendall(said)

        with suppress(ConnectionResetError):
            assert slow.recv(1) == b""
        served_at_last(path)


def test_a_client_that_has_asked_is_not_hung_up_on_while_it_thinks(tmp_path: Path) -> None:
    with serving(tmp_path, limit=10, head_timeout_s=0.1) as path, connect(path) as guest:
        for _ in range(2):
            guest.sendall(ASK.replace(b"close", b"keep-alive"))
            assert guest.recv(65536).startswith(b"HTTP/1.1 200")
            time.sleep(0.3)  # thrice the limit that holds for those who never asked
