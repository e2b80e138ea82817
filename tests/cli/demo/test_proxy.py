"""The proxy forwards, goes dark without telling anyone, and forwards again."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator

import pytest

from skerry.cli.demo.proxy import BlackHoleProxy


@pytest.fixture
def echo_port() -> Iterator[int]:
    """A server that sends everything back."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                try:
                    link, _ = server.accept()
                except OSError:
                    return
                threading.Thread(target=_echo, args=(link,), daemon=True).start()

        threading.Thread(target=serve, daemon=True).start()
        yield server.getsockname()[1]


def _echo(link: socket.socket) -> None:
    with link, contextlib.suppress(OSError):  # the proxy may close hard
        while chunk := link.recv(4096):
            link.sendall(chunk)


def ask(link: socket.socket, word: bytes) -> bytes:
    link.sendall(word)
    return link.recv(100)


def connect(port: int) -> socket.socket:
    link = socket.create_connection(("127.0.0.1", port), timeout=5)
    return link


def test_a_cut_cable_swallows_bytes_and_a_healed_one_carries_new_connections(echo_port: int) -> None:
    with BlackHoleProxy(echo_port) as proxy, connect(proxy.port) as link:
        assert ask(link, b"hello") == b"hello"

        proxy.cut()
        link.settimeout(0.3)
        with pytest.raises(TimeoutError):
            ask(link, b"lost")
        with connect(proxy.port) as dark:
            dark.settimeout(0.3)
            with pytest.raises(TimeoutError):
                ask(dark, b"nobody answers")

        proxy.heal()
        link.settimeout(5)
        assert link.recv(100) == b""  # what lived through the cut is closed
        with connect(proxy.port) as again:
            assert ask(again, b"back") == b"back"


def test_a_target_that_is_not_there_closes_the_connection() -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]

    with BlackHoleProxy(port) as proxy, connect(proxy.port) as link:
        assert link.recv(100) == b""
