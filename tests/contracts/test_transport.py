"""What every transport owes the link: one suite, run on each adapter."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest

from skerry.cli.demo.brokers import RunningBroker, find_mosquitto, start_broker
from skerry.errors import NotConnected, Rejected
from skerry.transport.memory import MemoryBroker, MemoryTransport
from skerry.transport.mqtt import MqttTransport
from skerry.transport.port import Transport, Will
from skerry.transport.settings import MqttSettings
from skerry.transport.testing import Recorder

LIMIT_BYTES = 64 * 1024
PATIENCE_S = 15.0  # how long a real broker may take before a test gives up; passing takes milliseconds
MakeWill = Callable[[], Will]


class LongestWait(Random):
    """Draws an hour where a delay is drawn."""

    def uniform(self, a: float, b: float) -> float:
        return 3600.0


class InMemory:
    """MemoryTransport on its virtual clock."""

    def __init__(self, directory: Path) -> None:
        self._broker = MemoryBroker(max_payload_bytes=LIMIT_BYTES)

    def new(self, client_id: str, *, will: MakeWill | None = None, patient: bool = False) -> Transport:
        rng = LongestWait() if patient else None
        return MemoryTransport(self._broker, client_id=client_id, will=will, rng=rng)

    def start(self, transport: Transport, listener: Recorder) -> None:
        transport.start(listener)

    def settle(self, condition: Callable[[], bool]) -> None:
        for _ in range(1000):
            if condition():
                return
            self._broker.pump(self._broker.now_s + 0.01)
        pytest.fail("it did not happen within ten virtual seconds")

    def break_broker(self) -> None:
        self._broker.crash()

    def restore_broker(self) -> None:
        self._broker.restart()

    def drop(self, client_id: str) -> None:
        self._broker.cut(client_id)

    def allow(self, client_id: str) -> None:
        self._broker.heal(client_id)

    def close(self) -> None:
        return


class Cable:
    """A TCP relay to the broker that can be pulled out."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._server: asyncio.Server | None = None
        self._writers: list[asyncio.StreamWriter] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_plugged = True
        self.port = 0

    async def open(self) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def pull(self) -> None:
        self._is_plugged = False
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()

    def plug(self) -> None:
        self._is_plugged = True

    async def close(self) -> None:
        await self.pull()
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not self._is_plugged:
            writer.transport.abort()
            return
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._target)
        except OSError:
            writer.transport.abort()
            return
        self._writers += [writer, far_writer]
        for source, sink in ((reader, far_writer), (far_reader, writer)):
            task = asyncio.get_running_loop().create_task(self._relay(source, sink))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _relay(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        try:
            while data := await source.read(65536):
                sink.write(data)
                await sink.drain()
        except OSError:
            sink.transport.abort()
        else:
            sink.close()


class OnMosquitto:
    """MqttTransport on a private mosquitto, each client over a cable of its own."""

    def __init__(self, directory: Path) -> None:
        self._loop = asyncio.new_event_loop()
        self._broker: RunningBroker = start_broker(directory, prefer="mosquitto")
        self._cables: dict[str, Cable] = {}
        self._transports: list[Transport] = []

    def new(self, client_id: str, *, will: MakeWill | None = None, patient: bool = False) -> Transport:
        cable = Cable(self._broker.port)
        self._loop.run_until_complete(cable.open())
        self._cables[client_id] = cable
        settings = MqttSettings(
            url=f"mqtt://127.0.0.1:{cable.port}",
            max_payload_bytes=LIMIT_BYTES,
            backoff_cap_s=0.1,
            will_delay_s=0,
        )
        transport = MqttTransport(
            settings, client_id=client_id, will=will, rng=LongestWait() if patient else None
        )
        self._transports.append(transport)
        return transport

    def start(self, transport: Transport, listener: Recorder) -> None:
        async def begin() -> None:
            transport.start(listener)

        self._loop.run_until_complete(begin())

    def settle(self, condition: Callable[[], bool]) -> None:
        async def wait() -> None:
            deadline = time.monotonic() + PATIENCE_S
            while not condition():
                assert time.monotonic() < deadline, "it did not happen"
                await asyncio.sleep(0.005)  # a real broker: there is nothing else to wait for

        self._loop.run_until_complete(wait())

    def break_broker(self) -> None:
        self._broker.kill()

    def restore_broker(self) -> None:
        self._broker.restart()

    def drop(self, client_id: str) -> None:
        self._loop.run_until_complete(self._cables[client_id].pull())

    def allow(self, client_id: str) -> None:
        self._cables[client_id].plug()

    def close(self) -> None:
        # A cable relays on this loop, so an orderly end needs it to run: stop on a thread beside it.
        for transport in self._transports:
            self._loop.run_until_complete(asyncio.to_thread(transport.stop))
        for cable in self._cables.values():
            self._loop.run_until_complete(cable.close())
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
        self._loop.close()
        self._broker.stop()


#: An adapter with its broker. `settle` lets time pass until something holds; a `patient` client waits an hour
#: before each new attempt; `drop` breaks one client's connection, without a word, until `allow`.
Harness = InMemory | OnMosquitto


@pytest.fixture(params=["memory", pytest.param("mosquitto", marks=pytest.mark.mosquitto)])
def harness(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Harness]:
    if request.param == "mosquitto" and find_mosquitto() is None:
        pytest.skip("mosquitto is not installed")
    made: Harness = InMemory(tmp_path) if request.param == "memory" else OnMosquitto(tmp_path)
    yield made
    made.close()


def connected(
    harness: Harness, client_id: str, *filters: str, will: MakeWill | None = None, patient: bool = False
) -> tuple[Transport, Recorder]:
    """A client that is up, and what it hears."""
    transport, heard = harness.new(client_id, will=will, patient=patient), Recorder()
    for topic_filter in filters:
        transport.subscribe(topic_filter)
    harness.start(transport, heard)
    harness.settle(lambda: heard.ups == 1)
    return transport, heard


def offline_will() -> Will:
    return Will(topic="a/presence", payload=b"offline")


def test_a_message_reaches_those_who_asked_for_its_topic(harness: Harness) -> None:
    sender, _ = connected(harness, "a")
    _, wanted = connected(harness, "b", "a/+")
    _, other = connected(harness, "c", "b/#")

    sender.publish("a/x", b"one")
    harness.settle(lambda: len(wanted.messages) == 1)

    assert wanted.messages[0].topic == "a/x"
    assert wanted.payloads() == [b"one"]
    assert not wanted.messages[0].retained
    assert other.messages == []


def test_messages_on_one_topic_keep_their_order(harness: Harness) -> None:
    sender, _ = connected(harness, "a")
    _, heard = connected(harness, "b", "a/x")
    wanted = [b"%d" % number for number in range(300)]

    for payload in wanted:
        sender.publish("a/x", payload)
    harness.settle(lambda: len(heard.messages) >= 300)

    assert heard.payloads() == wanted


def test_a_subscription_made_while_connected_counts_too(harness: Harness) -> None:
    sender, heard = connected(harness, "a")
    sender.subscribe("late/x")

    sender.publish("late/x", b"one")
    harness.settle(lambda: heard.payloads() == [b"one"])


def test_nothing_can_be_said_before_there_is_a_connection(harness: Harness) -> None:
    transport = harness.new("a")

    with pytest.raises(NotConnected):
        transport.publish("a/x", b"one")
    assert not transport.is_up


def test_a_message_that_is_too_large_is_refused_and_the_connection_stays(harness: Harness) -> None:
    sender, heard = connected(harness, "a", "a/x")

    with pytest.raises(Rejected):
        sender.publish("a/x", bytes(LIMIT_BYTES + 1))
    sender.publish("a/x", bytes(LIMIT_BYTES))
    harness.settle(lambda: len(heard.messages) == 1)

    assert heard.downs == []


def test_a_broker_that_is_not_there_yet_is_found_later(harness: Harness) -> None:
    harness.break_broker()
    transport, heard = harness.new("a"), Recorder()
    harness.start(transport, heard)
    assert not transport.is_up

    harness.restore_broker()
    harness.settle(lambda: heard.ups == 1)

    assert transport.is_up
    assert heard.downs == []


def test_a_lost_connection_is_told_and_made_again_with_its_subscriptions(harness: Harness) -> None:
    transport, heard = connected(harness, "a", "a/x")

    harness.break_broker()
    harness.settle(lambda: len(heard.downs) == 1)
    was_up = transport.is_up
    with pytest.raises(NotConnected):
        transport.publish("a/x", b"too early")
    harness.restore_broker()
    harness.settle(lambda: heard.ups == 2)
    transport.publish("a/x", b"again")
    harness.settle(lambda: len(heard.messages) == 1)

    assert not was_up
    assert heard.downs[0]
    assert heard.payloads() == [b"again"]


def test_wake_connects_at_once_whatever_the_back_off_says(harness: Harness) -> None:
    transport, heard = connected(harness, "a", patient=True)
    harness.break_broker()
    harness.settle(lambda: len(heard.downs) == 1)
    harness.restore_broker()

    transport.wake()
    harness.settle(lambda: heard.ups == 2)


def test_a_transport_that_rests_stays_away_until_it_is_woken(harness: Harness) -> None:
    resting, heard = connected(harness, "a")
    _, others = connected(harness, "b")
    resting.rest(600.0)
    harness.break_broker()
    harness.settle(lambda: len(heard.downs) == len(others.downs) == 1)

    harness.restore_broker()
    harness.settle(lambda: others.ups == 2)

    assert heard.ups == 1
    resting.wake()
    harness.settle(lambda: heard.ups == 2)


def test_a_retained_message_meets_those_who_come_later(harness: Harness) -> None:
    sender, _ = connected(harness, "a")
    _, early = connected(harness, "b", "a/state")

    sender.publish("a/state", b"one", retain=True)
    harness.settle(lambda: len(early.messages) == 1)
    _, late = connected(harness, "c", "a/+")
    harness.settle(lambda: len(late.messages) == 1)

    assert late.messages[0].retained
    assert late.payloads() == [b"one"]


def test_a_will_is_published_when_the_connection_dies(harness: Harness) -> None:
    _, heard = connected(harness, "b", "a/presence")
    connected(harness, "a", will=offline_will)

    harness.drop("a")
    harness.settle(lambda: len(heard.messages) == 1)

    assert heard.payloads() == [b"offline"]


def test_an_orderly_stop_publishes_no_will_and_is_heard_of_no_more(harness: Harness) -> None:
    watcher, heard = connected(harness, "b", "a/#")
    transport, silent = connected(harness, "a", "a/x", will=offline_will)

    transport.publish("a/x", b"last words")
    harness.settle(lambda: len(silent.messages) == 1)
    transport.stop()
    watcher.publish("a/x", b"after")
    harness.settle(lambda: len(heard.messages) == 2)

    assert heard.payloads() == [b"last words", b"after"]
    assert silent.payloads() == [b"last words"]
    assert silent.downs == []
    assert not transport.is_up


def test_a_connection_comes_back_after_it_was_dropped(harness: Harness) -> None:
    _, heard = connected(harness, "a")

    harness.drop("a")
    harness.settle(lambda: len(heard.downs) == 1)
    harness.allow("a")
    harness.settle(lambda: heard.ups == 2)


def test_acknowledging_twice_does_no_harm(harness: Harness) -> None:
    sender, heard = connected(harness, "a", "a/x")

    sender.publish("a/x", b"one")
    harness.settle(lambda: len(heard.messages) == 1)
    heard.messages[0].acknowledge()
    sender.publish("a/x", b"two")
    harness.settle(lambda: len(heard.messages) == 2)

    assert heard.downs == []
