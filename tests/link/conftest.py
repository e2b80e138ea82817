"""Two peers of one link, over the broker in memory, on its virtual clock."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from random import Random

import pytest

from skerry.clock import Instant
from skerry.envelope import Speaker
from skerry.identity import PrivateKey
from skerry.link.edge import EdgeLink
from skerry.link.hub import HubLink
from skerry.link.testing import MemoryStore, Peer, down_row
from skerry.messages import Birth, Lane
from skerry.node import Inventory, NodeRecord
from skerry.topics import COORDINATOR, coordinator_filters, node_filters
from skerry.transport.memory import MemoryBroker, MemoryTransport

FLEET, NODE = "demo", "north-1"


class World:
    """An edge and a hub with their stores, which survive the restarts of both."""

    def __init__(self, seed: int = 0) -> None:
        self.broker = MemoryBroker(seed=seed)
        self.edge_store = MemoryStore("edge-store")
        self.hub_store = MemoryStore("hub-log", row=down_row)
        self._keys = {NODE: PrivateKey.generate(), COORDINATOR: PrivateKey.generate()}
        self._rng = Random(seed)
        self._processes = itertools.count()
        self._transports: list[MemoryTransport] = []
        self.hub_record = NodeRecord(name=NODE, fleet=FLEET, region="north")
        self.hub, self.edge = self.new_hub(), self.new_edge()

    def now(self) -> Instant:
        return Instant("boot-1", self.broker.now_s)

    def key_of(self, source: str) -> bytes | None:
        key = self._keys.get(source)
        return bytes.fromhex(key.public_hex) if key else None

    def new_edge(self, *, hardware_id: str = "hw-1", boot_id: str = "boot-1") -> Peer:
        store = self.edge_store
        store.session += 1
        birth = Birth(
            boot_id=boot_id,
            session=store.session,
            inventory=Inventory(devices=(), cpu_millicores=1000, memory_bytes=1, hardware_id=hardware_id),
            region="north",
            store_epoch=store.epoch,
            command_epoch=self.hub_store.epoch,
            process=f"process-{next(self._processes)}",
        )
        core = EdgeLink(birth, mark_of=store.mark_of, rng=self._rng, heads=store.heads)
        peer = self._peer(core, store, NODE)
        self._connect(peer, NODE, node_filters(FLEET, NODE), peer.will)
        return peer

    def new_hub(self) -> Peer:
        store = self.hub_store
        store.session += 1
        core = HubLink(
            self.hub_record,
            term=store.session,
            command_epoch=store.epoch,
            mark_of=store.mark_of,
            heads=store.heads,
        )
        peer = self._peer(core, store, COORDINATOR)
        self._connect(peer, COORDINATOR, coordinator_filters(FLEET), None)
        return peer

    def reconnect(self, edge: Peer) -> None:
        """Let another edge process have the connection: the broker takes it from the one that has it."""
        self._connect(edge, NODE, node_filters(FLEET, NODE), edge.will)

    def restart_edge(self) -> None:
        self.edge.die()
        self.edge = self.new_edge()

    def restart_hub(self) -> None:
        assert isinstance(self.hub.core, HubLink)
        self.hub_record = NodeRecord(
            name=NODE, fleet=FLEET, region="north", session=self.hub.core.session, boot_id="boot-1"
        )
        self.hub.die()
        self.hub = self.new_hub()

    def run(self, seconds: float) -> None:
        """Let time pass, with a tick each second."""
        end_s = self.broker.now_s + seconds
        while self.broker.now_s < end_s:
            self.broker.pump(min(end_s, self.broker.now_s + 1.0))
            self.edge.tick()
            self.hub.tick()
        self.broker.pump(end_s)

    def _peer(self, core: EdgeLink | HubLink, store: MemoryStore, source: str) -> Peer:
        speaker = Speaker(self._keys[source], source=source, session=store.session)
        return Peer(
            core,
            store,
            speaker=speaker,
            fleet=FLEET,
            node=NODE,
            key_of=self.key_of,
            now=self.now,
            later=lambda commit: self.broker.at(self.broker.now_s + self._rng.uniform(0, 0.05), commit),
        )

    def _connect(self, peer: Peer, client_id: str, filters: tuple[str, ...], will: object) -> None:
        for old in self._transports:
            if old.client_id == client_id:
                old.stop()
        transport = MemoryTransport(self.broker, client_id=client_id, will=will)  # type: ignore[arg-type]
        self._transports.append(transport)
        peer.start(transport, filters)


@pytest.fixture
def new_world() -> Callable[..., World]:
    """Makes worlds; hypothesis wants a new one for each example."""
    return World


@pytest.fixture
def world() -> World:
    """One world without faults."""
    return World()


def said(store: MemoryStore, lane: Lane) -> list[str]:
    """What was applied of one lane, in order."""
    return [text for at, _, text in store.applied if at == lane]
