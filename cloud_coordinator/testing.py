"""The testing kit that ships: a coordinator core with model nodes on a virtual clock, links that can be cut.

A model node speaks the real messages and keeps what law 1 asks it to keep (its outbox, what it holds, what it
has applied) over every cut; it runs nothing: the test says how its tasks end.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec

from cloud_coordinator.core import actions as do
from cloud_coordinator.core import events as happened
from cloud_coordinator.core.core import CoordinatorCore
from cloud_coordinator.core.turn import Limits
from cloud_coordinator.ledger.memory import MemoryLedger
from cloud_coordinator.ledger.port import Ledger
from cloud_coordinator.ledger.values import LedgerTask
from cloud_coordinator.placement.planner import plan
from cloud_coordinator.placement.settings import PlacementSettings
from policy.guard.without_engine import AllowAll
from policy.port import Guard
from skerry.fence import Fence
from skerry.link.wire import DOWN_ROWS, KINDS, Body
from skerry.messages import (
    Birth,
    DownRow,
    FederationOver,
    FederationRequest,
    Hint,
    Lane,
    Outcome,
    PlacementRefused,
    PlaceTask,
    RevokePlacement,
    Row,
    State,
    StateAck,
    StreamAck,
    StreamBatch,
    TaskEnded,
    TaskOffered,
    TaskPlaced,
    TaskReturned,
    TaskWithdrawn,
    UpRow,
    Welcome,
    row_of,
)
from skerry.node import Device, Inventory, NodeRecord
from skerry.task import TaskSpec
from skerry.testing import ManualClock, a_task

_encode = msgspec.json.encode
_DOWN: dict[str, type[Body]] = {kind: body for body, kind in KINDS.items()}


def an_inventory(device_class: str = "cpu", **fields: Any) -> Inventory:
    """Return the inventory of a small machine with one device."""
    device = Device(
        device_id=f"{device_class}-0",
        device_class=device_class,  # type: ignore[arg-type] # the test names a class there is
        name=device_class,
        executors=("onnx", "command"),
        slots=4,
        cpu_millicores=4000,
        memory_bytes=4 << 30,
    )
    return Inventory(devices=(device,), cpu_millicores=4000, memory_bytes=4 << 30, **fields)


def a_node(name: str = "n1", *, region: str = "north", **fields: Any) -> NodeRecord:
    """Return an enrolled node."""
    return NodeRecord(**{"name": name, "fleet": "test", "region": region, "public_key": "00" * 32, **fields})


@dataclass
class ModelNode:
    """One node's side: durable things first, then the session's."""

    name: str
    region: str
    inventory: Inventory
    store_epoch: str = "store-1"
    salvaged_from: tuple[str, ...] = ()
    session: int = 0
    outbox: dict[Lane, list[Row]] = field(default_factory=lambda: {lane: [] for lane in Lane})
    last: dict[Lane, int] = field(default_factory=lambda: dict.fromkeys(Lane, 0))
    marks: dict[str, int] = field(default_factory=dict)
    command_epoch: str = ""
    #: What was placed here and has not ended: task id → the command.
    holds: dict[str, PlaceTask] = field(default_factory=dict)
    #: What came back to this node as a home: task id → the last word.
    returned: dict[str, TaskReturned] = field(default_factory=dict)
    told: list[TaskPlaced] = field(default_factory=list)
    heard: list[DownRow] = field(default_factory=list)
    #: What this node handed over and has no end of: task id → the task.
    waits_for: dict[str, TaskSpec] = field(default_factory=dict)
    term: int = 0
    #: Up to where the coordinator holds this node's rows, by lane, as it last said.
    held: dict[str, int] = field(default_factory=dict)
    is_cut: bool = False

    def say(self, message: UpRow, lane: Lane = Lane.LIVE) -> None:
        """Put a row into the outbox."""
        kind, body = row_of(message)
        self.last[lane] += 1
        self.outbox[lane].append(Row(seq=self.last[lane], kind=kind, body=msgspec.Raw(body)))

    def birth(self) -> Birth:
        """Begin a session."""
        self.session += 1
        return Birth(
            boot_id="boot-of-" + self.name,
            session=self.session,
            inventory=self.inventory,
            region=self.region,
            store_epoch=self.store_epoch,
            salvaged_from=self.salvaged_from,
            command_epoch=self.command_epoch,
            marks=dict(self.marks),
            term=self.term,
        )

    def state(self) -> State:
        """Return what it would report now."""
        return State(
            session=self.session,
            queued=0,
            running=len(self.holds),
            outbox=sum(map(len, self.outbox.values())),
            free_cpu_millicores=4000,
            free_memory_bytes=4 << 30,
            holds=tuple(self.holds),
        )

    def batches(self) -> Iterator[StreamBatch]:
        """Return everything in the outbox, a batch a lane."""
        for lane, rows in self.outbox.items():
            if rows:
                after = min(self.held.get(lane.value, 0), rows[0].seq - 1)
                yield StreamBatch(epoch=self.store_epoch, lane=lane, after=after, rows=tuple(rows))

    def hear(self, kind: str, body: bytes) -> list[Body]:
        """Take a message of the coordinator; return what it answers."""
        message = msgspec.json.decode(body, type=_DOWN[kind])
        match message:
            case Welcome():
                self._meet(message)
                return list(self.batches())
            case StreamAck():
                self.held[message.lane.value] = message.upto
                self.outbox[message.lane] = [r for r in self.outbox[message.lane] if r.seq > message.upto]
                return list(self.batches()) if message.is_gap else []
            case StreamBatch():
                return self._commands(message)
            case Hint():
                return [self.birth()] if message.must_be_born else []
            case StateAck():
                return []
            case _:
                raise AssertionError(f"the coordinator said {kind}")

    def _meet(self, welcome: Welcome) -> None:
        """Offer again what another ledger knew."""
        known, self.command_epoch = self.command_epoch, welcome.command_epoch
        self.term = max(self.term, welcome.term)
        self.held = dict(welcome.marks)
        if known not in ("", welcome.command_epoch):
            self.marks.clear()
            for task_id, task in self.waits_for.items():
                self.say(TaskOffered(task_id=task_id, task=task, is_again=True))

    def _commands(self, batch: StreamBatch) -> list[Body]:
        applied = self.marks.get(batch.lane.value, 0)
        if batch.after <= applied:
            for row in batch.rows:
                if row.seq > applied:
                    self._apply(row)
                    applied = row.seq
        self.marks[batch.lane.value] = applied
        return [StreamAck(epoch=batch.epoch, lane=batch.lane, upto=applied, is_gap=batch.after > applied)]

    def _apply(self, row: Row) -> None:
        command = DOWN_ROWS.read(row).message
        match command:
            case PlaceTask():
                self.holds[command.task_id] = command
            case RevokePlacement():
                held = self.holds.get(command.task_id)
                if held is not None and not command.fence < held.fence:
                    del self.holds[command.task_id]
            case TaskReturned():
                self.returned[command.task_id] = command
                self.waits_for.pop(command.task_id, None)
            case TaskPlaced():
                self.told.append(command)
            case FederationRequest() | FederationOver():
                pass  # the test looks at `heard`, and answers with say()
            case _:
                raise AssertionError(f"a command {row.kind}")
        self.heard.append(command)

    def finish(
        self, task_id: str, *, status: str = "succeeded", attempt: int = 1, result: Any = None
    ) -> Fence:
        """End a placed task; its report goes into the outbox."""
        held = self.holds.pop(task_id)
        fence = held.fence.with_attempt(attempt)
        outcome = Outcome(status=status, result=result, node=self.name, device="cpu-0", runtime_s=0.01)
        self.say(
            TaskEnded(task_id=task_id, task_kind=held.task.kind, fence=fence, outcome=outcome, is_placed=True)
        )
        return fence

    def refuse(self, task_id: str, reason: str) -> None:
        """Give a placed task back."""
        held = self.holds.pop(task_id)
        self.say(PlacementRefused(task_id=task_id, fence=held.fence, reason=reason))


class ModelFleet:
    """A coordinator core and its model nodes. `settle()` carries messages until nothing moves."""

    def __init__(
        self,
        *,
        ledger: Ledger | None = None,
        limits: Limits | None = None,
        placement: PlacementSettings | None = None,
        guard: Guard | None = None,
    ) -> None:
        """Start a coordinator that hears the broker, with no nodes."""
        self.clock = ManualClock()
        self.ledger = ledger or MemoryLedger()
        self.limits = limits or Limits(lease_s=60.0)
        self.placement = placement or PlacementSettings()
        self.guard = guard or AllowAll()
        self.nodes: dict[str, ModelNode] = {}
        self.reports: list[do.Report] = []
        self.waited_s: list[float] = []
        self._events: deque[happened.Event] = deque()
        self._ids = 0
        self.core = self._start()

    def restart(self) -> None:
        """Kill the coordinator and start it again on the same ledger; the nodes know nothing of it."""
        self._events.clear()
        self.core = self._start()

    def add(self, name: str, *, region: str = "north", device_class: str = "cpu") -> ModelNode:
        """Enrol a node and begin its first session."""
        node = ModelNode(name, region, an_inventory(device_class, hardware_id=f"hw-{name}"))
        self.nodes[name] = node
        self.give(happened.NodeEnrolled(a_node(name, region=region)))
        self.connect(name)
        return node

    def connect(self, name: str) -> None:
        """Begin a new session of a node."""
        node = self.nodes[name]
        node.is_cut = False
        self._hear(node, node.birth())
        self.settle()

    def cut(self, name: str) -> None:
        """Cut a node off: nothing passes in either direction, nobody is told."""
        self.nodes[name].is_cut = True

    def offer(self, home: str, task: TaskSpec | None = None) -> str:
        """Have a node offer a task; return its id. Nothing is carried yet."""
        self._ids += 1
        task_id = f"{self._ids:032x}"
        offer = TaskOffered(task_id=task_id, task=task or a_task(), reason="no device here")
        self.nodes[home].waits_for[task_id] = offer.task
        self.nodes[home].say(offer)
        return task_id

    def withdraw(self, home: str, task_id: str) -> None:
        """Have the home cancel a task it offered."""
        self.nodes[home].say(TaskWithdrawn(task_id=task_id), Lane.CONTROL)

    def send(self, name: str) -> None:
        """Have a node send what its outbox holds."""
        for batch in self.nodes[name].batches():
            self._hear(self.nodes[name], batch)

    def report(self, name: str) -> None:
        """Have a node report its state."""
        self._hear(self.nodes[name], self.nodes[name].state())

    def settle(self, seconds: float = 0.05) -> None:
        """Carry messages, plan, and let a little time pass, until nothing moves."""
        for node in self.nodes.values():
            if not node.is_cut:
                self.send(node.name)
        self._carry()
        for _ in range(2):
            self.clock.advance(seconds / 2)
            self._events.append(happened.Ticked())
            self._carry()

    def pass_time(self, seconds: float, *, step_s: float = 5.0) -> None:
        """Let time pass; nodes that are not cut off report their state."""
        while seconds > 0:
            self.clock.advance(min(step_s, seconds))
            seconds -= step_s
            for node in self.nodes.values():
                if not node.is_cut:
                    self.report(node.name)
            self.settle()

    def task(self, task_id: str) -> LedgerTask:
        """Return the ledger's word on a task."""
        entry = self.ledger.task(task_id)
        assert entry is not None, f"the ledger has no task {task_id}"
        return entry

    def counted(self, name: str, reason: str | None = None) -> int:
        """Return a counter's sum over nodes, of one reason or of all."""
        return sum(
            counter.count
            for counter in self.ledger.counters()
            if counter.name == name and reason in (None, counter.reason)
        )

    def give(self, event: happened.Event) -> None:
        """Give the core an event and perform what it asks for; messages wait for settle()."""
        for action in self.core.handle(event, self.clock.now(), self.clock.wall_s()):
            self._perform(action)

    def _start(self) -> CoordinatorCore:
        core = CoordinatorCore(
            self.ledger,
            guard=self.guard,
            now=self.clock.now(),
            wall_s=self.clock.wall_s(),
            limits=self.limits,
            placement=self.placement,
        )
        self._events.append(happened.BrokerUp())
        return core

    def _hear(self, node: ModelNode, body: Body) -> None:
        if not node.is_cut:
            self._events.append(happened.Heard(node.name, KINDS[type(body)], _encode(body)))

    def _carry(self) -> None:
        while self._events:
            self.give(self._events.popleft())

    def _perform(self, action: do.Action) -> None:
        match action:
            case do.Say(name, _, kind, body):
                node = self.nodes[name]
                if not node.is_cut:
                    for answer in node.hear(kind, body):
                        self._hear(node, answer)
            case do.MakePlan(requests, snapshot):
                made = plan(requests, snapshot, self.placement, guard=self.guard, profile=self.core.profile)
                self._events.append(happened.PlanMade(made))
            case do.Report():
                self.reports.append(action)
            case do.TaskPlacedFirst(_, _, waited_s):
                self.waited_s.append(waited_s)
            case do.Wake() | do.KeyChanged() | do.RepliesKept() | do.TermBegun():
                pass  # settle() ticks; there are no signatures here


def placed_on(fleet: ModelFleet, task_id: str) -> str:
    """Return the node that holds the task, empty when none does."""
    return next((node.name for node in fleet.nodes.values() if task_id in node.holds), "")


def place_one(fleet: ModelFleet, **fields: Any) -> tuple[str, str]:
    """Offer one task from n1 and have it placed; return its id and its node."""
    task_id = fleet.offer("n1", a_task(**fields))
    fleet.settle()
    node = placed_on(fleet, task_id)
    assert node
    return task_id, node
