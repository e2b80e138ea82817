"""What the MQTT adapter does beyond the contract: brokers that refuse, hang, lie or allow little."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from skerry.cli.demo.brokers import RunningBroker, find_mosquitto, free_port, start_broker
from skerry.errors import SettingsError
from skerry.transport.factory import make_transport
from skerry.transport.mqtt import MqttTransport
from skerry.transport.port import Message, Will
from skerry.transport.settings import MqttSettings, parse_address

PATIENCE_S = 15.0


class Recorder:
    """A listener that keeps what it hears, and acknowledges it if told so."""

    def __init__(self, *, acknowledges: bool = True) -> None:
        self.ups = 0
        self.downs: list[str] = []
        self.messages: list[Message] = []
        self.threads: set[int] = set()
        self._acknowledges = acknowledges

    def on_up(self) -> None:
        self.ups += 1
        self.threads.add(threading.get_ident())

    def on_down(self, reason: str) -> None:
        self.downs.append(reason)
        self.threads.add(threading.get_ident())

    def on_message(self, message: Message) -> None:
        self.messages.append(message)
        self.threads.add(threading.get_ident())
        if self._acknowledges:
            message.acknowledge()


async def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        await asyncio.sleep(0.005)  # a real broker: there is nothing else to wait for


@asynccontextmanager
async def running(
    settings: MqttSettings, recorder: Recorder, *filters: str, client_id: str = "a"
) -> AsyncIterator[MqttTransport]:
    transport = make_transport(settings, client_id=client_id)
    for topic_filter in filters:
        transport.subscribe(topic_filter)
    transport.start(recorder)
    try:
        yield transport
    finally:
        transport.stop()


def quick(url: str, **fields: object) -> MqttSettings:
    return msgspec.convert({"url": url, "backoff_cap_s": 0.1, **fields}, MqttSettings)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[RunningBroker]:
    if find_mosquitto() is None:
        pytest.skip("mosquitto is not installed")
    started = start_broker(tmp_path, prefer="mosquitto")
    yield started
    started.stop()


@pytest.mark.mosquitto
def test_the_listener_is_called_on_the_event_loop_alone(broker: RunningBroker) -> None:
    recorder = Recorder()

    async def story() -> None:
        async with running(quick(broker.url), recorder, "x") as transport:
            await until(lambda: recorder.ups == 1)
            transport.publish("x", b"one")
            await until(lambda: len(recorder.messages) == 1)
            broker.kill()
            await until(lambda: len(recorder.downs) == 1)

    asyncio.run(story())

    assert recorder.threads == {threading.get_ident()}


@pytest.mark.mosquitto
def test_what_the_application_did_not_acknowledge_comes_again(broker: RunningBroker) -> None:
    careless, careful = Recorder(acknowledges=False), Recorder()

    async def story() -> None:
        async with running(quick(broker.url), careless, "x") as transport:
            await until(lambda: careless.ups == 1)
            transport.publish("x", b"one")
            await until(lambda: len(careless.messages) == 1)
        async with running(quick(broker.url), careful, "x"):
            await until(lambda: len(careful.messages) == 1)
        careless.messages[0].acknowledge()  # of a connection that is over: says nothing to anyone

    asyncio.run(story())

    assert careful.messages[0].payload == b"one"


@pytest.mark.mosquitto
def test_a_broker_that_takes_few_messages_at_once_is_not_overrun(tmp_path: Path) -> None:
    if find_mosquitto() is None:
        pytest.skip("mosquitto is not installed")
    broker = start_broker(tmp_path, prefer="mosquitto")
    configuration = tmp_path / "mosquitto.conf"
    configuration.write_text(configuration.read_text() + "max_inflight_messages 3\n")
    broker.restart()
    recorder = Recorder()

    async def story() -> None:
        async with running(quick(broker.url), recorder, "x") as transport:
            await until(lambda: recorder.ups == 1)
            for number in range(200):
                transport.publish("x", b"%d" % number)
            await until(lambda: len(recorder.messages) >= 200)

    asyncio.run(story())
    broker.stop()

    assert [int(message.payload) for message in recorder.messages] == list(range(200))
    assert recorder.downs == []


@pytest.mark.mosquitto
def test_reconnecting_leaves_neither_threads_nor_sockets_behind(broker: RunningBroker) -> None:
    recorder = Recorder()
    counts: list[tuple[int, int]] = []

    async def story() -> None:
        async with running(quick(broker.url), recorder, "x") as transport:
            for round_number in range(1, 16):
                await until(lambda wanted=round_number: recorder.ups == wanted)  # type: ignore[misc]
                counts.append((threading.active_count(), len(os.listdir("/proc/self/fd"))))
                broker.restart()
                transport.wake()

    asyncio.run(story())

    threads, descriptors = zip(*counts, strict=True)
    assert threads[-1] == threads[2]
    assert (
        descriptors[-1] <= descriptors[2] + 4
    )  # a try that just failed may still be there; not twelve of them


def test_a_broker_that_accepts_and_never_answers_is_given_up_and_tried_again() -> None:
    recorder = Recorder()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(PATIENCE_S)
        url = f"mqtt://127.0.0.1:{listener.getsockname()[1]}"

        async def story() -> None:
            async with running(quick(url, connect_timeout_s=0.3), recorder):
                first, _ = await asyncio.to_thread(listener.accept)
                second, _ = await asyncio.to_thread(listener.accept)
                first.close()
                second.close()

        asyncio.run(story())

    assert recorder.ups == 0


@pytest.mark.mosquitto
def test_a_link_that_went_silent_is_noticed_by_the_keep_alive(broker: RunningBroker) -> None:
    recorder = Recorder()

    async def story() -> None:
        silent = asyncio.Event()

        writers: list[asyncio.StreamWriter] = []

        async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            while (data := await reader.read(65536)) and not silent.is_set():
                writer.write(data)

        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            far_reader, far_writer = await asyncio.open_connection(broker.host, broker.port)
            writers.extend([writer, far_writer])
            await asyncio.gather(relay(reader, far_writer), relay(far_reader, writer))

        server = await asyncio.start_server(accept, "127.0.0.1", 0)
        url = f"mqtt://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with running(quick(url, keepalive_s=1), recorder):
            await until(lambda: recorder.ups == 1)
            silent.set()
            await until(lambda: len(recorder.downs) == 1)
        server.close()
        for writer in writers:
            writer.transport.abort()
        await server.wait_closed()
        await asyncio.sleep(0)  # one turn of the loop closes what was aborted

    asyncio.run(story())

    assert recorder.downs


def test_trouble_is_logged_when_it_changes_and_not_each_time(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "skerry.transport")
    port = free_port()
    attempts = 0

    def will() -> Will:
        nonlocal attempts
        attempts += 1
        return Will(topic="a/presence", payload=b"")

    async def story() -> None:
        transport = MqttTransport(quick(f"mqtt://127.0.0.1:{port}"), client_id="a", will=will)
        transport.start(Recorder())
        await until(lambda: attempts >= 5)
        transport.stop()

    asyncio.run(story())

    lines = [record.getMessage() for record in caplog.records]
    assert lines == [
        f"no connection to the broker mqtt://127.0.0.1:{port}: nothing listens on 127.0.0.1:{port};"
        " trying again until it works"
    ]


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"url": "mqtt://broker.invalid:1883"}, "the name broker.invalid cannot be resolved"),
        ({"url": "mqtts://127.0.0.1:1", "ca_file": "missing.crt"}, "missing.crt cannot be read"),
        ({"username": "a", "password_file": "missing.txt"}, "missing.txt cannot be read"),
    ],
)
def test_what_is_wrong_is_said_and_tried_again(
    fields: dict[str, str], says: str, caplog: pytest.LogCaptureFixture
) -> None:
    settings = quick(**{"url": "mqtt://127.0.0.1:1", **fields})

    async def story() -> None:
        async with running(settings, Recorder()):
            await until(lambda: "no connection" in caplog.text)

    asyncio.run(story())

    assert says in caplog.text
    assert "Traceback" not in caplog.text


@pytest.mark.parametrize(
    "url",
    ["", "localhost", "http://x", "mqtt://", "mqtt://h:port", "mqtt://h:70000", "mqtt://u:p@h", "mqtt://h/x"],
)
def test_a_malformed_address_is_refused_before_anything_starts(url: str) -> None:
    with pytest.raises(SettingsError) as refusal:
        parse_address(url)
    assert "u:p" not in str(refusal.value)


def test_an_address_names_host_port_and_tls() -> None:
    assert parse_address("mqtt://broker") == parse_address("mqtt://broker:1883")
    assert parse_address("mqtts://broker").port == 8883
    assert parse_address("mqtts://[::1]:9").host == "::1"
    assert parse_address("mqtts://broker").is_tls


def test_the_embedded_broker_carries_messages_through_its_own_adapter(tmp_path: Path) -> None:
    broker = start_broker(tmp_path, prefer="embedded")
    sender, receiver = Recorder(), Recorder()
    large = os.urandom(200_000)

    async def story() -> None:
        async with (
            running(broker.settings, receiver, "skerry/1/demo/+/events", client_id="b"),
            running(broker.settings, sender, "skerry/1/demo/north-1/ack", client_id="a") as transport,
        ):
            await until(lambda: sender.ups == 1 and receiver.ups == 1)
            transport.publish("skerry/1/demo/north-1/events", large)
            transport.publish("skerry/1/demo/north-1/presence", b"kept", retain=True)
            await until(lambda: len(receiver.messages) == 1)
            broker.kill()
            await until(lambda: bool(sender.downs) and bool(receiver.downs))
            broker.restart()
            transport.wake()
            await until(lambda: sender.ups == 2 and receiver.ups == 2)
            transport.publish("skerry/1/demo/north-1/events", b"again")
            await until(lambda: len(receiver.messages) == 2)

    try:
        asyncio.run(story())
    finally:
        broker.stop()

    assert broker.kind == "embedded"
    assert broker.settings.adapter == "paho-quickack"
    assert [message.payload for message in receiver.messages] == [large, b"again"]


def test_the_embedded_broker_listens_on_loopback_alone(tmp_path: Path) -> None:
    broker = start_broker(tmp_path, prefer="embedded")
    listening = Path("/proc/net/tcp").read_text().splitlines()[1:]
    broker.stop()

    port = f"{broker.port:04X}"
    addresses = {
        line.split()[1]
        for line in listening
        if line.split()[3] == "0A" and line.split()[1].endswith(f":{port}")
    }
    assert addresses == {f"0100007F:{port}"}


def test_a_fault_of_its_owner_does_not_end_reconnecting(caplog: pytest.LogCaptureFixture) -> None:
    calls = 0

    def broken_will() -> Will:
        nonlocal calls
        calls += 1
        raise ZeroDivisionError

    async def story() -> None:
        transport = MqttTransport(quick("mqtt://127.0.0.1:1"), client_id="a", will=broken_will)
        transport.start(Recorder())
        await until(lambda: calls >= 3)
        transport.stop()

    asyncio.run(story())

    assert caplog.text.count("internal fault: ZeroDivisionError()") == 1


@pytest.mark.mosquitto
def test_stopping_while_it_connects_leaves_no_thread_behind(broker: RunningBroker) -> None:
    async def story() -> None:
        for round_number in range(20):
            async with running(quick(broker.url), Recorder(), "x"):
                await asyncio.sleep(round_number * 0.0005)  # lands somewhere in the handshake, on purpose

    asyncio.run(story())

    names = [thread.name for thread in threading.enumerate() if thread.name.startswith("mqtt-")]
    assert names == []
