"""Run in a network of its own: a transport that would wait for an hour, and an address that comes up."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import time
from random import Random

from skerry.transport.mqtt import MqttTransport
from skerry.transport.network import NetworkWatch
from skerry.transport.settings import MqttSettings
from skerry.transport.testing import Recorder

ADDRESS = "192.0.2.1"  # of a range that is never used (RFC 5737)
PATIENCE_S = 20.0


class FirstForAnHour(Random):
    """Draws an hour once, then nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.draws = 0

    def uniform(self, a: float, b: float) -> float:
        self.draws += 1
        return 3600.0 if self.draws == 1 else 0.0


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)


def sees() -> None:
    """What is gained is seen, what is lost is not."""
    watch = NetworkWatch()
    assert not watch.has_come_up()
    ip("link", "set", "lo", "up")
    assert watch.has_come_up()
    ip("link", "set", "lo", "down")
    assert not watch.has_come_up()
    watch.close()


async def returns() -> None:
    """The transport tries again when its way to the broker has come up."""
    with socket.create_server(("0.0.0.0", 0)) as listener:
        listener.settimeout(PATIENCE_S)
        rng = FirstForAnHour()
        settings = MqttSettings(url=f"mqtt://{ADDRESS}:{listener.getsockname()[1]}")
        transport = MqttTransport(settings, client_id="a", rng=rng)
        transport.start(Recorder())
        deadline = time.monotonic() + PATIENCE_S
        while not rng.draws:
            assert time.monotonic() < deadline, "it did not try"
            await asyncio.sleep(0.01)  # it tries on a thread of its own
        ip("address", "add", f"{ADDRESS}/32", "dev", "lo")
        ip("link", "set", "lo", "up")
        caller, _ = await asyncio.to_thread(listener.accept)
        caller.close()
        await asyncio.to_thread(transport.stop)


if __name__ == "__main__":
    sees()
    asyncio.run(returns())
