"""The coordinator's side of the link for tests of a real agent: its link core, on the transport in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

import msgspec

from edge_agent.runtime import Agent
from skerry.clock import SystemClock
from skerry.envelope import Speaker, open_envelope
from skerry.errors import EnvelopeRefused
from skerry.fence import Fence
from skerry.identity import PrivateKey
from skerry.ids import TaskId
from skerry.link import actions as do
from skerry.link import events as happened
from skerry.link.edge import Phase
from skerry.link.hub import HubLink
from skerry.messages import (
    DownRow,
    Lane,
    PlaceTask,
    Row,
    UpRow,
    row_of,
)
from skerry.node import NodeRecord
from skerry.replay import ReplayWindows
from skerry.task import CommandSpec, Resources, TaskSpec
from skerry.topics import COORDINATOR, build, coordinator_filters
from skerry.transport.memory import MemoryBroker, MemoryTransport
from skerry.transport.port import Message
from task_queue.store import TaskRecord

PATIENCE_S = 30.0
FLEET, NODE = "fleet", "edge-1"


class Coordinator:
    """The coordinator's side of one node: the real link core on lists instead of a ledger."""

    def __init__(self, broker: MemoryBroker, key: PrivateKey, node_key: bytes, *, term: int = 1) -> None:
        self.clock = SystemClock()
        self.transport = MemoryTransport(broker, client_id=f"coordinator-{term}")
        self.speaker = Speaker(key, source=COORDINATOR, session=term)
        self.node_key = node_key
        self.windows = ReplayWindows()
        self.rows: list[Row] = []
        self.heard: list[UpRow] = []
        self.refused: list[str] = []
        self.marks: dict[tuple[str, Lane], int] = {}
        record = NodeRecord(name=NODE, fleet=FLEET, region="north")
        self.hub = HubLink(
            record,
            term=term,
            command_epoch=f"epoch-{term}",
            mark_of=lambda epoch, lane: self.marks.get((epoch, lane), 0),
            state_interval_s=0.1,
        )
        for topic_filter in coordinator_filters(FLEET):
            self.transport.subscribe(topic_filter)
        self.transport.start(self)

    def on_up(self) -> None:
        self._do(self.hub.handle(happened.LinkUp(), self.clock.now()))

    def on_down(self, reason: str) -> None:
        self._do(self.hub.handle(happened.LinkDown(), self.clock.now()))

    def on_message(self, message: Message) -> None:
        try:
            opened = open_envelope(
                message.payload,
                topic=message.topic,
                key_of=lambda source: self.node_key if source == NODE else None,
                windows=self.windows,
            )
        except EnvelopeRefused as error:
            self.refused.append(error.reason)
            return
        self._do(self.hub.handle(happened.Received(opened.kind, opened.body), self.clock.now()))

    def tick(self) -> None:
        self._do(self.hub.handle(happened.Tick(), self.clock.now()))

    def command(self, message: DownRow) -> None:
        kind, body = row_of(message)
        self.command_raw(kind, body)

    def command_raw(self, kind: str, body: bytes) -> None:
        self.rows.append(Row(seq=len(self.rows) + 1, kind=kind, body=msgspec.Raw(body)))
        self._do(self.hub.handle(happened.OutboxGrew(Lane.CONTROL, len(self.rows)), self.clock.now()))

    def heard_of(self, kind: type) -> list[UpRow]:
        return [row for row in self.heard if isinstance(row, kind)]

    def _do(self, actions: list[do.Action]) -> None:
        for action in actions:
            match action:
                case do.Send():
                    topic = build(FLEET, NODE, action.leaf)
                    if self.transport.is_up:
                        sealed = self.speaker.seal(topic, action.kind, action.body)
                        self.transport.publish(topic, sealed, retain=action.retain)
                case do.ReadRows():
                    rows = (
                        tuple(r for r in self.rows if r.seq > action.after)
                        if action.lane is Lane.CONTROL
                        else ()
                    )
                    event = happened.RowsRead(action.lane, action.after, rows[: action.limit])
                    self._do(self.hub.handle(event, self.clock.now()))
                case do.ApplyRows():
                    self.heard += [row.message for row in action.rows if row.message is not None]  # type: ignore[misc]
                    self.marks[action.epoch, action.lane] = action.upto
                    applied = happened.Applied(action.epoch, action.lane, action.upto)
                    self._do(self.hub.handle(applied, self.clock.now()))
                case _:
                    pass


class Net:
    """One agent and its coordinator on one virtual network, whose clock follows the real one."""

    def __init__(self, agent: Agent, broker: MemoryBroker, coordinator: Coordinator) -> None:
        self.agent, self.broker, self.coordinator = agent, broker, coordinator

    async def until(self, is_so: Callable[[], object]) -> None:
        """Pump until it is so; raises TimeoutError when it never is."""
        async with asyncio.timeout(PATIENCE_S):
            while not is_so():
                await self.step()

    async def step(self) -> None:
        self.broker.pump(self.broker.now_s + 0.05)
        self.coordinator.tick()
        await asyncio.sleep(0.005)  # lets the agent's threads commit; polled with a deadline

    async def end_of(self, task_id: TaskId) -> TaskRecord:
        store = self.agent.parts.store

        def has_ended() -> bool:
            record = store.get(task_id)
            return record is not None and record.outcome is not None

        await self.until(has_ended)
        record = store.get(task_id)
        assert record is not None
        return record


Connect = Callable[[], AbstractAsyncContextManager[Net]]


def a_command(*argv: str, **fields: Any) -> TaskSpec:
    resources = Resources(cpu_millicores=100, memory_bytes=1 << 26)
    return TaskSpec(**{"spec": CommandSpec(argv=argv), "resources": resources, **fields})


def place(net: Net, task: TaskSpec, *, number: int = 1, lease_s: float = 600.0) -> TaskId:
    task_id = TaskId(f"{number:032x}")
    net.coordinator.command(
        PlaceTask(task_id=task_id, task=task, fence=Fence((1, number)), home_node="edge-9", lease_s=lease_s)
    )
    return task_id


def is_welcomed(net: Net) -> bool:
    return net.agent.uplink is not None and net.agent.uplink.phase is Phase.WELCOMED
