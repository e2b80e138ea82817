"""Envelopes that were recorded and are sent again, over restarts of the coordinator."""

from __future__ import annotations

import msgspec
import pytest

from cloud_coordinator.core import events as happened
from cloud_coordinator.senders import Senders
from cloud_coordinator.testing import ModelFleet, a_node
from skerry.envelope import Speaker
from skerry.errors import EnvelopeRefused
from skerry.identity import PrivateKey
from skerry.link.wire import KINDS, Body
from skerry.messages import LossReported
from skerry.topics import Leaf, build

KEY = PrivateKey.generate()
NODE = a_node("n1", public_key=KEY.public_hex)
LEAVES = {"birth": Leaf.BIRTH, "state": Leaf.STATE, "stream.batch": Leaf.EVENTS}


class Wire:
    """Node n1's envelopes, recorded, on their way through the door into the core."""

    def __init__(self) -> None:
        self.fleet = ModelFleet()
        self.fleet.give(happened.NodeEnrolled(NODE))
        self.fleet.add("n1")
        self.fleet.give(happened.NodeEnrolled(NODE))
        self.node = self.fleet.nodes["n1"]
        self.senders = Senders(self.fleet.core.nodes())
        self.speaker = Speaker(KEY, source="n1", session=0)
        self.recorded: list[tuple[str, bytes]] = []

    def say(self, body: Body) -> None:
        kind = KINDS[type(body)]
        topic = build("test", "n1", LEAVES[kind])
        self.recorded.append((topic, self.speaker.seal(topic, kind, msgspec.json.encode(body))))
        self.hear(*self.recorded[-1])

    def hear(self, topic: str, payload: bytes) -> None:
        opened = self.senders.open(topic, payload)
        self.fleet.give(happened.Heard("n1", opened.kind, opened.body, opened.counter))

    def be_born(self) -> None:
        birth = self.node.birth()
        self.speaker = self.speaker.in_session(birth.session)
        self.say(birth)

    def restart_coordinator(self) -> None:
        self.fleet.restart()
        self.senders = Senders(self.fleet.core.nodes(), self.fleet.core.heard_upto())

    def work(self) -> None:
        self.be_born()
        for number in range(5):
            self.node.say(LossReported(lost_class="t", reason=f"{number}", count=1))
            self.say(next(iter(self.node.batches())))
            self.say(self.node.state())


def test_a_recorded_birth_does_not_open_a_session_after_a_restart() -> None:
    wire = Wire()
    wire.work()

    wire.restart_coordinator()

    for topic, payload in wire.recorded[:-1]:  # the last report alone has left no trace, and opens nothing
        with pytest.raises(EnvelopeRefused, match="counter"):
            wire.hear(topic, payload)
    wire.hear(*wire.recorded[-1])
    assert wire.fleet.core.memory.nodes["n1"].state is None


def test_a_new_birth_ends_what_was_recorded_before_it() -> None:
    wire = Wire()
    wire.work()
    wire.restart_coordinator()
    recorded = list(wire.recorded)

    birth = wire.node.birth()
    wire.node.session -= 1
    wire.say(msgspec.structs.replace(birth, session=wire.node.session))

    for topic, payload in recorded:
        with pytest.raises(EnvelopeRefused, match="counter"):
            wire.hear(topic, payload)
    wire.say(wire.node.state())
    assert wire.fleet.core.memory.nodes["n1"].state is not None
