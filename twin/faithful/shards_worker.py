"""A worker of a world over several processes: it has its share of the nodes, their producers and the witness.

Owns one share. It knows neither network nor coordinator; its nodes' transports lead to the first process.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import partial
from math import nextafter
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NamedTuple

import msgspec

from devices.executors.kernel import die_with_parent
from skerry.messages import Lane
from skerry.node import NodeRecord
from task_queue.operations import TrimOutbox
from twin.faithful.agent import Node
from twin.faithful.chance import seeded_secrets
from twin.faithful.mishaps import plan_mishaps
from twin.faithful.run import LOOK_EVERY_S, Report, report_of, whereabouts
from twin.faithful.shards_wire import Parcel, Port
from twin.faithful.staging import FLEET, LOAD_BEGINS_S, Stage
from twin.scenario.language import Scenario

#: Node, epoch of its store, lane, up to where.
Trim = tuple[str, str, Lane, int]
_ANY_MARK = 1 << 62


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker is to do. share: the names of its nodes."""

    scenario: Scenario
    seed: int
    home: str
    parent: int  #: id of the first process
    share: tuple[str, ...]
    number: int


class Go(NamedTuple):
    """Go on to just before a moment; these things come in on the way."""

    until_s: float
    parcels: list[Parcel]


class Come(NamedTuple):
    """It has gone there: when it has something to do next, its tasks so far, what it sent and trimmed."""

    next_s: float
    submitted: int
    parcels: list[Parcel]
    trims: list[Trim]


class Held(NamedTuple):
    """What a worker saw, at the end."""

    report: Report
    trims: list[Trim]


class ShareStage(Stage):
    """A stage on which only some of the nodes are ever started; with none of them, the coordinator is."""

    def __init__(self, scenario: Scenario, seed: int, home: Path, share: Sequence[str]) -> None:
        """share: their names; empty: it is the first process's."""
        super().__init__(scenario, seed, home)
        self._share = frozenset(share)
        self.trims: list[Trim] = []
        self.port = Port(self.world, max_payload_bytes=self.world.network.max_payload_bytes)
        self.producers = [producer for producer in self.producers if producer.node in self._share]
        self.cloud.may_run = not share
        for name in share:
            node = self.nodes[name]
            node.join = partial(self.port.join, node.client_id)

    def open(self) -> None:
        """Put everything on the agenda: the moments are the same in every process."""
        self.cloud.start()
        for node in self.nodes.values():
            self.cloud.enrol(record_of(node))
        self.world.at(1.0, self._start_all)
        for producer in self.producers:
            producer.start(LOAD_BEGINS_S)
        plan_mishaps(self)

    def start(self, node: Node) -> None:
        """See Stage. Other workers' nodes are not started here."""
        if node.name in self._share:
            super().start(node)

    def look(self) -> None:
        """Look at the laws that need a look."""
        for name in sorted(self._share):
            self.witness.look_at_bounds(self.nodes[name])
            self.witness.look_at_running(self.nodes[name])

    def _start_all(self) -> None:
        for node in self.nodes.values():
            self.start(node)

    def _cloud_mark(self, node: str, epoch: str, lane: Lane) -> int:
        return _ANY_MARK  # the first process looks at it: it is told of every trim

    def _committed(self, node: Node, operations: object, answers: object) -> None:
        super()._committed(node, operations, answers)
        agent = node.agent
        for operation in operations:  # type: ignore[attr-defined]
            if isinstance(operation, TrimOutbox) and agent is not None:
                self.trims.append((node.name, agent.parts.store.epoch, operation.lane, operation.upto))


def record_of(node: Node) -> NodeRecord:
    """Return what the register holds of a node before it has said anything."""
    return NodeRecord(name=node.name, fleet=FLEET, region=node.plan.region, public_key=node.key.public_hex)


def serve(pipe: Connection, order: bytes) -> None:
    """Be a worker until the pipe says where the end is."""
    try:
        told = msgspec.json.decode(order, type=Order)
        die_with_parent(told.parent)
        _serve(pipe, told)
    except EOFError:
        return  # the first process needs nothing more
    except Exception as error:
        pipe.send(error)


def _serve(pipe: Connection, order: Order) -> None:
    stage = ShareStage(order.scenario, order.seed, Path(order.home), order.share)
    digest = hashlib.sha256()
    stage.log = lambda line: digest.update(line.encode() + b"\n")
    looked_s = 0.0
    with seeded_secrets(stage.world.rng(f"secrets {order.number}")), stage.disks():
        try:
            stage.open()
            while isinstance(said := pipe.recv(), Go):
                stage.port.take(said.parcels)
                while looked_s + LOOK_EVERY_S < said.until_s:
                    looked_s += LOOK_EVERY_S
                    stage.world.run(looked_s)
                    stage.look()
                stage.world.run(nextafter(said.until_s, 0.0))
                sent, stage.port.out = stage.port.out, []
                pipe.send(Come(stage.world.next_s(), stage.witness.submitted, sent, _taken(stage.trims)))
            stage.world.run(said)
            lost = stage.witness.at_the_end(tuple(stage.nodes.values()), whereabouts)
            pipe.send(Held(report_of(stage, lost, digest.hexdigest(), 0.0), _taken(stage.trims)))
        finally:
            stage.close()


def _taken(trims: list[Trim]) -> list[Trim]:
    taken = list(trims)
    trims.clear()
    return taken
