"""Nothing may wait in a broker: its own offline session loses messages, the link over it none."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import paho.mqtt.client as paho
import pytest
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from skerry.cli.demo.brokers import RunningBroker, find_mosquitto, start_broker
from skerry.clock import Instant, SystemClock
from skerry.envelope import Speaker
from skerry.identity import PrivateKey
from skerry.link.edge import EdgeLink
from skerry.link.hub import HubLink
from skerry.link.testing import MemoryStore, Peer, down_row
from skerry.messages import Birth, Lane
from skerry.node import Inventory, NodeRecord
from skerry.topics import COORDINATOR, coordinator_filters, node_filters
from skerry.transport.mqtt import MqttTransport
from skerry.transport.settings import MqttSettings

pytestmark = pytest.mark.mosquitto
FLEET, NODE = "demo", "north-1"
PATIENCE_S = 30.0


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[RunningBroker]:
    if find_mosquitto() is None:
        pytest.skip("mosquitto is not installed")
    running = start_broker(tmp_path, prefer="mosquitto")
    yield running
    running.stop()


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.01)  # paho works on a thread of its own: nothing here can be waited on


class PlainClient:
    """A client that trusts the broker: QoS 1, persistent session, nothing else."""

    def __init__(self, broker: RunningBroker, client_id: str) -> None:
        self.received: list[bytes] = []
        self.acknowledged = 0
        self.is_subscribed = False
        self._client = paho.Client(CallbackAPIVersion.VERSION2, client_id=client_id, protocol=paho.MQTTv5)
        self._client.on_connect = lambda client, *_: client.subscribe("work/#", qos=1)
        self._client.on_subscribe = lambda *_: setattr(self, "is_subscribed", True)
        self._client.on_message = lambda *given: self.received.append(given[-1].payload)
        self._client.on_publish = lambda *_: setattr(self, "acknowledged", self.acknowledged + 1)
        session = Properties(PacketTypes.CONNECT)
        session.SessionExpiryInterval = 3600
        self._client.connect(broker.host, broker.port, clean_start=False, properties=session)
        self._client.loop_start()
        wait_for(lambda: self.is_subscribed)

    def publish(self, *payloads: bytes) -> None:
        for payload in payloads:
            self._client.publish("work/x", payload, qos=1)
        wait_for(lambda: self.acknowledged == len(payloads))

    def leave(self) -> None:
        self._client.disconnect()
        self._client.loop_stop()


def received_after(broker: RunningBroker) -> int:
    """What the persistent session hands out when its client comes back."""
    subscriber = PlainClient(broker, "subscriber")
    marker = PlainClient(broker, "marker")
    marker.publish(b"marker")  # comes after everything that the session held
    wait_for(lambda: b"marker" in subscriber.received)
    time.sleep(0.3)  # proves an absence: nothing more comes once the marker is there
    subscriber.leave()
    marker.leave()
    return len(subscriber.received) - 1


def test_the_brokers_own_session_drops_acknowledged_messages_past_its_limit(broker: RunningBroker) -> None:
    PlainClient(broker, "subscriber").leave()
    publisher = PlainClient(broker, "publisher")

    publisher.publish(*(b"%d" % number for number in range(3000)))
    publisher.leave()

    assert received_after(broker) == 1000


def test_the_brokers_own_session_loses_acknowledged_messages_when_it_is_killed(broker: RunningBroker) -> None:
    PlainClient(broker, "subscriber").leave()
    publisher = PlainClient(broker, "publisher")

    publisher.publish(*(b"%d" % number for number in range(500)))
    broker.kill()
    publisher.leave()
    broker.restart()

    assert received_after(broker) == 0


class Pair:
    """An edge and a hub over a real broker; their stores survive everything."""

    def __init__(self, broker: RunningBroker) -> None:
        self._settings = MqttSettings(url=broker.url, backoff_cap_s=0.2, keepalive_s=5)
        self._keys = {NODE: PrivateKey.generate(), COORDINATOR: PrivateKey.generate()}
        self._clock = SystemClock()
        self._transports: dict[str, MqttTransport] = {}
        self.edge_store = MemoryStore("edge-store")
        self.hub_store = MemoryStore("hub-log", row=down_row)
        self.peers: dict[str, Peer] = {}

    def start_edge(self) -> None:
        store = self.edge_store
        store.session += 1
        birth = Birth(
            boot_id="boot-1",
            session=store.session,
            inventory=Inventory(devices=(), cpu_millicores=1000, memory_bytes=1),
            region="north",
            store_epoch=store.epoch,
            command_epoch=self.hub_store.epoch,
        )
        core = EdgeLink(birth, mark_of=store.mark_of, rng=Random(1), heads=store.heads)
        self._start(NODE, core, store, node_filters(FLEET, NODE))

    def start_hub(self) -> None:
        store = self.hub_store
        store.session += 1
        record = NodeRecord(name=NODE, fleet=FLEET, region="north", session=self.edge_store.session)
        core = HubLink(record, term=1, command_epoch=store.epoch, mark_of=store.mark_of, heads=store.heads)
        self._start(COORDINATOR, core, store, coordinator_filters(FLEET))

    def stop(self, source: str) -> None:
        self.peers.pop(source).die()
        self._transports.pop(source).stop()

    def put(self, store: MemoryStore, source: str, count: int) -> None:
        """Rows of two lanes, whether or not their sender runs."""
        for number in range(count):
            lane = Lane.LIVE if number % 3 else Lane.BACKLOG
            if source in self.peers:
                self.peers[source].put(lane, f"{lane.value}-{store.heads[lane]}")
            else:
                store.put(lane, f"{lane.value}-{store.heads[lane]}")

    async def until(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            assert time.monotonic() < deadline, "it did not happen"
            for peer in self.peers.values():
                peer.tick()
            await asyncio.sleep(0.01)  # a real broker on a real clock

    async def until_all_is_applied(self) -> None:
        await self.until(lambda: self.edge_store.waiting == 0 and self.hub_store.waiting == 0)

    def _start(
        self, source: str, core: EdgeLink | HubLink, store: MemoryStore, filters: tuple[str, ...]
    ) -> None:
        speaker = Speaker(self._keys[source], source=source, session=store.session)
        peer = Peer(core, store, speaker=speaker, fleet=FLEET, node=NODE, key_of=self._key_of, now=self._now)
        will = peer.will if source == NODE else None
        transport = MqttTransport(self._settings, client_id=source, will=will)
        self.peers[source], self._transports[source] = peer, transport
        peer.start(transport, filters)

    def _now(self) -> Instant:
        return self._clock.now()

    def _key_of(self, source: str) -> bytes | None:
        return bytes.fromhex(self._keys[source].public_hex) if source in self._keys else None


def assert_each_once_and_in_order(sender: MemoryStore, receiver: MemoryStore) -> None:
    for lane in (Lane.LIVE, Lane.BACKLOG):
        wanted = [f"{lane.value}-{number}" for number in range(sender.heads[lane])]
        assert [text for at, _, text in receiver.applied if at == lane] == wanted


def play(story: Callable[[Pair], object], broker: RunningBroker) -> Pair:
    """Run a story on an event loop, and end both sides however it ends."""
    pair = Pair(broker)

    async def run() -> None:
        try:
            await story(pair)  # type: ignore[misc]
        finally:
            for source in list(pair.peers):
                pair.stop(source)

    asyncio.run(run())
    return pair


def test_the_link_loses_none_of_what_was_queued_for_a_side_that_was_away(broker: RunningBroker) -> None:
    async def story(pair: Pair) -> None:
        pair.start_edge()
        pair.put(pair.edge_store, NODE, 3000)
        pair.put(pair.hub_store, COORDINATOR, 600)
        await asyncio.sleep(0.3)  # the node is connected, and alone, for a while
        pair.start_hub()
        await pair.until_all_is_applied()
        pair.stop(NODE)
        pair.put(pair.hub_store, COORDINATOR, 3000)
        pair.start_edge()
        await pair.until_all_is_applied()

    pair = play(story, broker)

    assert len(pair.hub_store.applied) == 3000
    assert len(pair.edge_store.applied) == 3600
    assert_each_once_and_in_order(pair.edge_store, pair.hub_store)
    assert_each_once_and_in_order(pair.hub_store, pair.edge_store)


def test_the_link_loses_none_when_the_broker_is_killed_in_mid_drain(broker: RunningBroker) -> None:
    async def story(pair: Pair) -> None:
        pair.start_hub()
        pair.start_edge()
        pair.put(pair.edge_store, NODE, 3000)
        pair.put(pair.hub_store, COORDINATOR, 1000)
        for share in (500, 1500, 2500):
            await pair.until(lambda share=share: len(pair.hub_store.applied) >= share)  # type: ignore[misc]
            broker.kill()
            pair.put(pair.edge_store, NODE, 300)
            broker.restart()
        await pair.until_all_is_applied()

    pair = play(story, broker)

    assert len(pair.hub_store.applied) == 3900
    assert_each_once_and_in_order(pair.edge_store, pair.hub_store)
    assert_each_once_and_in_order(pair.hub_store, pair.edge_store)
