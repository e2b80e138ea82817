"""A network that has come back is noticed, and ends the wait for the next try."""

from __future__ import annotations

import asyncio
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from skerry.transport.mqtt import MqttTransport
from skerry.transport.network import NetworkWatch
from skerry.transport.port import Will
from skerry.transport.settings import MqttSettings
from skerry.transport.testing import Recorder

PATIENCE_S = 15.0
STORY = Path(__file__).with_name("network_story.py")
OF_ITS_OWN = ["unshare", "--user", "--map-root-user", "--net"]


class Scripted(Random):
    """Draws an hour once, then nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.widths: list[float] = []

    def uniform(self, a: float, b: float) -> float:
        self.widths.append(b)
        return 3600.0 if len(self.widths) == 1 else 0.0


class ToldWatch:
    """Has seen the network come up when it is told so."""

    def __init__(self) -> None:
        self.up = threading.Event()
        self.closed = threading.Event()

    def has_come_up(self) -> bool:
        is_up = self.up.is_set()
        self.up.clear()
        return is_up

    def close(self) -> None:
        self.closed.set()


def test_a_network_that_comes_back_ends_an_armed_back_off() -> None:
    watch, rng = ToldWatch(), Scripted()
    tries: list[None] = []

    def will() -> Will:
        tries.append(None)
        return Will(topic="x", payload=b"")

    async def story() -> None:
        settings = MqttSettings(url="mqtt://127.0.0.1:1")
        transport = MqttTransport(settings, client_id="a", will=will, rng=rng, watch=lambda: watch)
        transport.start(Recorder())
        await until(lambda: len(rng.widths) == 1)
        watch.up.set()
        await until(lambda: len(tries) >= 2)
        await asyncio.to_thread(transport.stop)

    asyncio.run(story())

    assert rng.widths[:2] == [1.0, 1.0]  # drawn anew, so that a region does not come back in one moment
    assert watch.closed.is_set()


def test_the_kernel_tells_of_a_network_that_comes_up() -> None:
    if not all(map(shutil.which, ("unshare", "ip"))) or subprocess.run([*OF_ITS_OWN, "true"]).returncode:
        pytest.skip("no network of its own can be made here")

    done = subprocess.run([*OF_ITS_OWN, sys.executable, STORY], capture_output=True, text=True)

    assert done.returncode == 0, done.stderr


def test_where_watching_is_forbidden_it_says_so_once_and_sees_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def forbidden(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    caplog.set_level("INFO")
    monkeypatch.setattr(socket, "socket", forbidden)
    watch = NetworkWatch()

    assert not watch.has_come_up()
    assert caplog.text.count("Operation not permitted") == 1
    watch.close()


async def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        await asyncio.sleep(0.005)  # the transport tries on a thread of its own
