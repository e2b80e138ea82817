"""A real coordinator behind a real broker, with model nodes that sign what they say."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from cloud_coordinator.api.office import Office
from cloud_coordinator.core.events import NodeEnrolled
from cloud_coordinator.service import running
from cloud_coordinator.settings import CoordinatorSettings
from cloud_coordinator.testing import ModelNode, a_node, an_inventory
from skerry.cli.demo.brokers import RunningBroker, find_mosquitto, start_broker
from skerry.envelope import Speaker, open_envelope
from skerry.errors import NotConnected
from skerry.identity import PrivateKey
from skerry.link.wire import KINDS, Body
from skerry.messages import TaskOffered
from skerry.replay import ReplayWindows
from skerry.testing import a_task
from skerry.topics import COORDINATOR, Leaf, build, node_filters
from skerry.transport.mqtt import MqttTransport
from skerry.transport.port import Message

pytestmark = pytest.mark.mosquitto
LEAVES = {"birth": Leaf.BIRTH, "state": Leaf.STATE, "stream.batch": Leaf.EVENTS, "stream.ack": Leaf.UP_ACK}
PATIENCE_S = 30.0


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[RunningBroker]:
    if find_mosquitto() is None:
        pytest.skip("mosquitto is not installed")
    started = start_broker(tmp_path / "broker", prefer="mosquitto")
    yield started
    started.stop()


class WireNode:
    """A model node on a real connection. A transport's listener."""

    def __init__(self, name: str, broker: RunningBroker) -> None:
        self.model = ModelNode(name, "north", an_inventory(hardware_id=name))
        self.key = PrivateKey.generate()
        self.coordinator_key = b""
        self._speaker = Speaker(self.key, source=name, session=0)
        self._windows = ReplayWindows()
        settings = msgspec.structs.replace(broker.settings, backoff_cap_s=0.5)
        self._transport = MqttTransport(settings, client_id=name)
        for topic_filter in node_filters("test", name):
            self._transport.subscribe(topic_filter)

    def start(self) -> None:
        self._transport.start(self)

    def stop(self) -> None:
        self._transport.stop()

    def on_up(self) -> None:
        birth = self.model.birth()
        self._speaker = Speaker(self.key, source=self.model.name, session=birth.session)
        self._say(birth)

    def on_down(self, reason: str) -> None:
        """Its outbox keeps everything."""

    def on_message(self, message: Message) -> None:
        opened = open_envelope(
            message.payload,
            topic=message.topic,
            key_of={COORDINATOR: self.coordinator_key}.get,
            windows=self._windows,
        )
        message.acknowledge()
        for body in self.model.hear(opened.kind, opened.body):
            if body.__class__.__name__ == "Birth":
                self.on_up()
            else:
                self._say(body)

    def send(self) -> None:
        """Say what the outbox holds."""
        for batch in self.model.batches():
            self._say(batch)

    def report(self) -> None:
        """Say what it is doing."""
        self._say(self.model.state())

    def offer(self, task_id: str) -> None:
        self.model.say(TaskOffered(task_id=task_id, task=a_task()))
        self.send()

    def _say(self, body: Body) -> None:
        kind = KINDS[type(body)]
        topic = build("test", self.model.name, LEAVES[kind])
        try:
            self._transport.publish(topic, self._speaker.seal(topic, kind, msgspec.json.encode(body)))
        except NotConnected:
            return  # it stays in the outbox


async def until(what: Callable[[], object], nudge: Callable[[], None] = lambda: None) -> None:
    """Wait until something holds, nudging now and then (a node's link would resend by itself, later)."""
    deadline = time.monotonic() + PATIENCE_S
    nudged = time.monotonic()
    while not what():
        assert time.monotonic() < deadline, "it did not happen in time"
        await asyncio.sleep(0.002)  # polling what other processes do
        if time.monotonic() - nudged > 0.5:
            nudged = time.monotonic()
            nudge()


def settings_in(path: Path, broker: RunningBroker) -> CoordinatorSettings:
    return msgspec.convert(
        {
            "data_dir": str(path / "coordinator"),
            "fleet": "test",
            "api": {"listen": ""},
            "mqtt": {"url": broker.url, "backoff_cap_s": 0.5},
            "rules": {"enabled": False},
        },
        CoordinatorSettings,
    )


async def enrol(office: Office, nodes: list[WireNode]) -> None:
    now, wall_s = office.clock.now(), office.clock.wall_s()
    for node in nodes:
        node.coordinator_key = bytes.fromhex(office.key.public_hex)
        event = NodeEnrolled(a_node(node.model.name, public_key=node.key.public_hex))
        office.runtime.perform(await office.ask(lambda core, event=event: core.handle(event, now, wall_s)))


def test_a_task_survives_the_deaths_of_broker_and_coordinator(tmp_path: Path, broker: RunningBroker) -> None:
    home, worker = WireNode("n1", broker), WireNode("n2", broker)
    first, second = "1" * 32, "2" * 32

    def speak() -> None:
        worker.send()
        home.report()  # a coordinator that knows nothing of this session asks for its birth

    async def story() -> None:
        async with running(settings_in(tmp_path, broker)) as office:
            await until(lambda: office.runtime.is_up)
            await enrol(office, [home, worker])
            for node in (home, worker):
                node.start()
            await until(lambda: worker.model.command_epoch and home.model.command_epoch)

            home.offer(first)
            await until(lambda: first in worker.model.holds, home.send)
            broker.kill()
            await until(lambda: not office.runtime.is_up)
            worker.model.finish(first, result="kept through it all")
            home.model.say(TaskOffered(task_id=second, task=a_task()))
            broker.restart()
            await until(lambda: first in home.model.returned, worker.send)
            await until(lambda: second in worker.model.holds, home.send)
        worker.model.finish(second)
        worker.send()  # there is no coordinator to hear it
        async with running(settings_in(tmp_path, broker)) as office:
            await until(lambda: second in home.model.returned, speak)
            assert office.runtime.term == 2
        for node in (home, worker):
            node.stop()

    asyncio.run(story())
    assert home.model.returned[first].outcome.result == "kept through it all"
    assert [home.model.returned[task_id].fence.path for task_id in (first, second)] == [(1, 1), (1, 1)]


def test_an_offer_is_answered_with_a_place(tmp_path: Path, broker: RunningBroker) -> None:
    home, worker = WireNode("n1", broker), WireNode("n2", broker)
    trips: list[float] = []

    async def story() -> None:
        async with running(settings_in(tmp_path, broker)) as office:
            await until(lambda: office.runtime.is_up)
            await enrol(office, [home, worker])
            for node in (home, worker):
                node.start()
            await until(lambda: worker.model.command_epoch and home.model.command_epoch)
            for number in range(1, 31):
                began = time.perf_counter()
                home.offer(f"{number:032x}")
                await until(lambda n=number: len(home.model.told) == n, home.send)
                trips.append(time.perf_counter() - began)
            assert office.figures.placement_ms()["p50"] > 0
        for node in (home, worker):
            node.stop()

    asyncio.run(story())
    assert {notice.node for notice in home.model.told} == {"n2"}
    print(f"offer to answer: median {sorted(trips)[15] * 1000:.1f} ms, worst {max(trips) * 1000:.1f} ms")
