"""What one event works on: the ledger, the core's volatile memory, the time, and the actions so far.

Owns the memory's shape. Everything in it can be made again from the ledger: a restart loses nothing.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec

from cloud_coordinator.core.actions import Action
from cloud_coordinator.core.queue import PlanQueue
from cloud_coordinator.ledger.port import Ledger
from cloud_coordinator.ledger.values import LedgerTask, Moment
from cloud_coordinator.placement.settings import PlacementSettings
from cloud_coordinator.placement.snapshot import Reservation
from cloud_coordinator.rollout.core import Rollouts
from policy.port import Guard
from policy.profile import RuntimeProfile
from skerry.clock import Instant
from skerry.messages import DownRow, Lane, State, row_of
from skerry.node import NodeRecord

#: What an agent lists at most in State.holds; a full list says nothing of what is not on it.
HOLDS_LIMIT = 5000
#: Waiting tasks planned when one place becomes free: the first of them may not fit it.
CALLED_PER_PLACE = 3


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """The core's own numbers; the settings check them."""

    #: Requests that come within so many milliseconds are planned together.
    batch_ms: float = 4.0
    #: Powered-on seconds a placement stays valid when its node is not heard.
    lease_s: float = 900.0
    #: A task that nobody can take is planned again after so many seconds (and when a node changes).
    retry_s: float = 2.0
    #: How often a node reports its state; three missed reports make it stale.
    state_interval_s: float = 5.0
    #: A larger fleet is told to spread its return, so that no more nodes come back in one second.
    reconnects_per_s: float = 200.0
    #: Ended tasks kept in the ledger.
    keep_ended: int = 500_000


@dataclass
class NodeNow:
    """What is known of a node at this moment, beside the register's record."""

    record: NodeRecord
    last_heard: Instant
    state: State | None = None
    reservations: dict[str, Reservation] = field(default_factory=dict)  #: by task id


@dataclass
class Memory:
    """The core's volatile state."""

    nodes: dict[str, NodeNow] = field(default_factory=dict)
    #: When the lease of each placed task ends.
    leases: dict[str, Instant] = field(default_factory=dict)
    #: Of placed tasks: in how many reports in a row its node said neither that it has it nor that it ended.
    absences: dict[str, int] = field(default_factory=dict)
    queue: PlanQueue = field(default_factory=PlanQueue)
    #: When the own time of each open task runs out.
    expiries: dict[str, Instant] = field(default_factory=dict)
    #: What the home of each waiting task was told: said again only when it changes.
    told: dict[str, str] = field(default_factory=dict)
    #: Tasks that wait for room only, in the order in which they were turned away.
    crowded: dict[str, None] = field(default_factory=dict)
    #: Of tasks that nodes refused: when the last of them did.
    refused_at: dict[str, Instant] = field(default_factory=dict)
    #: Answers to training instructions that wait to be taken; None: not counted yet.
    letters: int | None = None
    planning_since: Instant | None = None
    revision: int = 0
    last_tick: Instant | None = None
    #: Since when nothing can be heard because our own link is down: silence says nothing then.
    deaf_since: Instant | None = None


@dataclass
class Turn:
    """One event's work."""

    ledger: Ledger
    memory: Memory
    limits: Limits
    placement: PlacementSettings
    guard: Guard
    profile: RuntimeProfile
    rollouts: Rollouts
    term: int
    now: Instant
    wall_s: float
    actions: list[Action] = field(default_factory=list)
    counter: int = 0  #: of the envelope that is taken, in its session
    ahead: tuple[str, int] | None = None  #: a node that knows more than the ledger, and a term it knows
    grown: dict[tuple[str, Lane], int] = field(default_factory=dict)  #: command logs that got rows: new heads

    @property
    def moment(self) -> Moment:
        """This moment, comparable after a restart."""
        return Moment(self.now, self.wall_s)

    def act(self, action: Action) -> None:
        """Ask the shell for something, after the commit."""
        self.actions.append(action)

    def command(self, node: str, message: DownRow, lane: Lane) -> int:
        """Write a row into a node's command log; it is sent after the commit."""
        kind, body = row_of(message)
        seq = self.ledger.append_command(node, lane, kind, body, key=getattr(message, "task_id", ""))
        self.grown[node, lane] = seq
        return seq

    def count(self, name: str, *, node: str = "", reason: str = "", by: int = 1) -> None:
        """Add to a durable counter."""
        self.ledger.count(name, node=node, reason=reason, by=by)

    def forget(self, task_id: str) -> None:
        """Drop everything volatile about a task that is final."""
        memory = self.memory
        memory.queue.drop(task_id)
        memory.crowded.pop(task_id, None)
        for table in (memory.leases, memory.absences, memory.expiries, memory.told, memory.refused_at):
            table.pop(task_id, None)

    def plan_soon(self, task_id: str) -> None:
        """Have a task planned with the others that come within the batch's window."""
        self.memory.queue.put(task_id, self.now.plus(self.limits.batch_ms / 1000))

    def room_freed(self) -> None:
        """A place is free: plan the next few that wait for room, rather than at their next retry."""
        for task_id in list(itertools.islice(self.memory.crowded, CALLED_PER_PLACE)):
            del self.memory.crowded[task_id]
            if task_id in self.memory.queue:
                self.plan_soon(task_id)

    def is_past(self, moment: Instant | None) -> bool:
        """Decide whether a moment has come; of another boot it has not (it is set anew at the start)."""
        return moment is not None and self.now.since(moment) >= 0.0 and self.now.boot_id == moment.boot_id

    def expiry_of(self, task: LedgerTask) -> Instant | None:
        """Return when a task's own time runs out, None without a limit."""
        limit_s = task.task.expires_after_s if task.task else None
        if limit_s is None:
            return None
        return self.now.plus(limit_s - task.received.age_s(self.now, self.wall_s))


def reservations_of(nodes: Mapping[str, NodeNow], leaving_out: frozenset[str]) -> list[Reservation]:
    """Return the room that is promised, without that of the given tasks."""
    return [
        reservation
        for node in nodes.values()
        for task_id, reservation in node.reservations.items()
        if task_id not in leaving_out
    ]
