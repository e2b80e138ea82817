"""Many null clients in one process, each a node of its own on the wire.

Every node has its key, its MQTT connection, its link core and its requests for content. What an agent adds, a
store that syncs and a child that trains, is left out: a hundred agents do not fit on the machine measured.
"""

from __future__ import annotations

import asyncio
import hashlib
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from random import Random

import msgspec

from cloud_coordinator.testing import an_inventory
from edge_agent.coordinator_http import CoordinatorContent
from federation.trainer import TrainerContext
from federation.trainers.null import NullTrainer
from federation.values import INLINE_LIMIT_BYTES
from federation.wire import content_hash, pack, unpack
from skerry.clock import SystemClock
from skerry.envelope import Speaker, open_envelope
from skerry.errors import NotConnected
from skerry.identity import PrivateKey, parse_public_key
from skerry.link import actions as do
from skerry.link import events as happened
from skerry.link.edge import EdgeLink
from skerry.messages import Birth, FederationReply, FederationRequest, Lane, Row, row_of
from skerry.replay import ReplayWindows
from skerry.topics import COORDINATOR, Leaf, build, node_filters
from skerry.transport.factory import make_transport
from skerry.transport.port import Message
from skerry.transport.settings import MqttSettings

REGION = "north"
TICK_S = 0.5


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Where the nodes' coordinator and broker are. Keys lie in `keys`, one file a node."""

    fleet: str
    broker: str
    url: str
    coordinator_key: str
    keys: str
    nodes: tuple[str, ...]


class NullNode:
    """One node that answers every instruction at once. A transport's listener."""

    def __init__(self, place: Place, name: str, work: Path) -> None:
        """Make it; nothing is connected."""
        self._name, self._work, self._clock = name, work / name, SystemClock()
        key = PrivateKey.load_or_create(Path(place.keys) / f"{name}.key")
        self._topics = {leaf: build(place.fleet, name, leaf) for leaf in Leaf}
        self._speaker = Speaker(key, source=name, session=1)
        self._windows = ReplayWindows()
        self._trusted = parse_public_key(place.coordinator_key)
        self._content = CoordinatorContent(place.url, node=name, key=key)
        self._marks: dict[Lane, int] = {}
        self._outbox: list[Row] = []
        self._written = 0
        inventory = an_inventory(hardware_id=name, can_train=True)
        boot = self._clock.now().boot_id
        birth = Birth(boot_id=boot, session=1, inventory=inventory, region=REGION, store_epoch=name)
        self._link = EdgeLink(birth, mark_of=lambda epoch, lane: self._marks.get(lane, 0), rng=Random(name))
        self._transport = make_transport(MqttSettings(url=place.broker), client_id=name)
        for topic_filter in node_filters(place.fleet, name):
            self._transport.subscribe(topic_filter)
        self._jobs: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        """Connect."""
        self._transport.start(self)

    def tick(self) -> None:
        """Let the link look at the time."""
        self._handle(happened.Tick())

    def on_up(self) -> None:
        """See Listener."""
        self._handle(happened.LinkUp())

    def on_down(self, reason: str) -> None:
        """See Listener."""
        self._handle(happened.LinkDown())

    def on_message(self, message: Message) -> None:
        """See Listener."""
        opened = open_envelope(
            message.payload,
            topic=message.topic,
            key_of=lambda source: self._trusted if source == COORDINATOR else None,
            windows=self._windows,
        )
        self._handle(happened.Received(opened.kind, opened.body))
        message.acknowledge()

    def _handle(self, event: happened.Event) -> None:
        for action in self._link.handle(event, self._clock.now()):
            self._perform(action)

    def _perform(self, action: do.Action) -> None:
        match action:
            case do.Send(leaf, kind, body, retain):
                topic = self._topics[leaf]
                try:
                    self._transport.publish(topic, self._speaker.seal(topic, kind, body), retain=retain)
                except NotConnected:
                    return  # the link says it again
            case do.ReadRows(lane, after, limit, _):
                there = self._outbox if lane is Lane.BACKLOG else []
                rows = tuple(row for row in there if row.seq > after)[:limit]
                self._later(happened.RowsRead(lane, after, rows))
            case do.TrimOutbox(lane, upto):
                self._outbox = [row for row in self._outbox if row.seq > upto or lane is not Lane.BACKLOG]
            case do.ApplyRows():
                self._marks[action.lane] = action.upto
                for row in action.rows:
                    if isinstance(row.message, FederationRequest):
                        self._begin(row.message)
                self._later(happened.Applied(action.epoch, action.lane, action.upto))
            case _:
                pass  # nothing else concerns a node that only trains

    def _later(self, event: happened.Event) -> None:
        asyncio.get_running_loop().call_soon(self._handle, event)

    def _begin(self, request: FederationRequest) -> None:
        job = asyncio.create_task(self._answer(request))
        self._jobs.add(job)
        job.add_done_callback(self._jobs.discard)

    async def _answer(self, request: FederationRequest) -> None:
        async with self._content.get(request.model, 0) as chunks:
            model = b"".join([chunk async for chunk in chunks])
        if content_hash(model) != request.model:
            raise SystemExit("another model came than was asked for")
        context = TrainerContext(node=self._name, seed=_seed(request, self._name))
        trained, examples, metrics = NullTrainer().train(unpack(model), request.config, context)
        packet = pack(trained)
        is_small = len(packet) <= INLINE_LIMIT_BYTES
        if not is_small:
            self._work.write_bytes(packet)
            if not await self._content.has(content_hash(packet)):
                await self._content.put(content_hash(packet), self._work)
        reply = FederationReply(
            instruction_id=request.instruction_id,
            run_id=request.run_id,
            version=request.version,
            num_examples=examples,
            inline=packet if is_small else b"",
            update="" if is_small else content_hash(packet),
            metrics=metrics,
        )
        kind, body = row_of(reply)
        self._written += 1
        self._outbox.append(Row(seq=self._written, kind=kind, body=msgspec.Raw(body)))
        self._handle(happened.OutboxGrew(Lane.BACKLOG, self._written))


def _seed(request: FederationRequest, name: str) -> int:
    text = f"{request.seed}\n{request.version}\n{name}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:7], "big")


async def _run(place: Place) -> None:
    with tempfile.TemporaryDirectory(prefix="skerry-nodes-") as work:
        nodes = [NullNode(place, name, Path(work)) for name in place.nodes]
        for node in nodes:
            node.start()
        while True:
            await asyncio.sleep(TICK_S)
            for node in nodes:
                node.tick()


def main(arguments: Sequence[str]) -> None:
    """Run until killed; the one argument is a file that describes the place."""
    place = msgspec.json.decode(Path(arguments[0]).read_bytes(), type=Place)
    asyncio.run(_run(place))


if __name__ == "__main__":
    main(sys.argv[1:])
