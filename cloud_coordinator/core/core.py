"""The coordinator's core: `handle(event, now) -> actions`, one ledger transaction an event.

Owns term and memory. Pure but for the ledger, which is synchronous: the same code runs in the service and in
the twin. Actions may be performed only after the outermost transaction is synced.
"""

from __future__ import annotations

from typing import TypeVar

import msgspec

from cloud_coordinator.core import custody, leases, links, planning, policies, register
from cloud_coordinator.core.actions import Action, Report, TermBegun
from cloud_coordinator.core.events import (
    BirthDisregarded,
    BrokerDown,
    BrokerUp,
    CommandsGiven,
    ContentStored,
    Event,
    Heard,
    NodeEnrolled,
    NodeReleased,
    NodeRevoked,
    PlanFailed,
    PlanMade,
    PressureChanged,
    RefusalsCounted,
    Ticked,
)
from cloud_coordinator.core.turn import Limits, Memory, NodeNow, Turn
from cloud_coordinator.ledger.port import Ledger
from cloud_coordinator.ledger.values import LedgerTask, TaskFilter, TaskState
from cloud_coordinator.placement.settings import PlacementSettings
from cloud_coordinator.placement.snapshot import Reservation
from cloud_coordinator.rollout.core import Rollouts
from policy.port import Guard
from policy.profile import RuntimeProfile
from skerry.clock import Instant
from skerry.errors import StorageFailed
from skerry.fence import Fence
from skerry.link.events import BirthRefused, LinkDown, LinkUp, Received, Tick
from skerry.node import NodeRecord
from skerry.task import blobs_of

T = TypeVar("T")

#: Pruning looks at counts only, but need not do so each second.
PRUNE_EVERY_S = 30.0
#: The newest ended tasks, whose large results their homes may still be fetching.
RESULTS_KEPT = 5000


class CoordinatorCore:
    """Everything the coordinator decides."""

    def __init__(
        self,
        ledger: Ledger,
        *,
        guard: Guard,
        now: Instant,
        wall_s: float,
        limits: Limits | None = None,
        placement: PlacementSettings | None = None,
        version: str = "",
    ) -> None:
        """Begin a new term and take up what the ledger holds: every lease begins anew, none has run out."""
        self.ledger = ledger
        self._guard = guard
        self._limits = limits or Limits()
        self._placement = placement or PlacementSettings()
        self._profile = RuntimeProfile()
        self._links = links.Links(version)
        self._pruned_at = now
        self.term = ledger.begin_term()
        self.memory = Memory(deaf_since=now)
        self.rollouts = Rollouts(ledger)
        self.load(now, wall_s)

    @property
    def profile(self) -> RuntimeProfile:
        """Measured run times, for the planner."""
        return self._profile

    def load(self, now: Instant, wall_s: float) -> None:
        """Make the memory again from the ledger (after a start, or after a commit that failed)."""
        heard = {name: node.last_heard for name, node in self.memory.nodes.items()}
        self._links.drop_all()
        self.rollouts = Rollouts(self.ledger)
        self.memory = Memory(revision=self.memory.revision + 1, deaf_since=self.memory.deaf_since)
        for record in self.ledger.nodes():
            self.memory.nodes[record.name] = NodeNow(record, heard.get(record.name, now))
        turn = self._turn(now, wall_s)
        for entry in self.ledger.placed():
            self.memory.leases[entry.task_id] = now.plus(self._limits.lease_s)
            self._reserve(entry)
            _watch_expiry(turn, entry)
        offset = 0
        while page := self.ledger.pending(1000, offset):
            offset += len(page)
            for entry in page:
                self.memory.queue.put(entry.task_id, now)
                _watch_expiry(turn, entry)

    def handle(self, event: Event, now: Instant, wall_s: float) -> list[Action]:
        """Return what is to be done about an event, in order, once its commit is synced.

        Raises StorageFailed when the disk refuses: then nothing happened, and the event may be given again.
        """
        turn = self._turn(now, wall_s)
        try:
            with self.ledger.transaction():
                self._take(turn, event)
                if turn.ahead is not None:
                    turn = self._start_over(turn, *turn.ahead)
                self._links.send_grown(turn)
                planning.plan_due(turn)
        except StorageFailed:
            self.load(now, wall_s)
            raise
        return turn.actions

    def redeem(
        self, digest: str, record: NodeRecord, now: Instant, wall_s: float
    ) -> tuple[str, list[Action]]:
        """Enrol a node by its token's digest: the reason against it ("" when it is enrolled), and actions."""
        turn = self._turn(now, wall_s)
        with self.ledger.transaction():
            against = register.redeem(turn, digest, record)
            if against:
                turn.count("enrolments_refused")
            elif turn.actions:
                self._links.drop(record.name)
        return against, turn.actions

    def admit_token(
        self, digest: str, now: Instant, wall_s: float, *, valid_s: float, node: str = "", region: str = ""
    ) -> None:
        """Let a one-use token enrol a node from here on; only its digest is known here."""
        with self.ledger.transaction():
            turn = self._turn(now, wall_s)
            register.admit_token(turn, digest, valid_s=valid_s, node=node, region=region)

    def ask_rollouts(self, asked: policies.Asked[T], now: Instant, wall_s: float) -> tuple[T, list[Action]]:
        """Have a wish about policies done; return the answer, and actions.  Raises PolicyError."""
        turn = self._turn(now, wall_s)
        with self.ledger.transaction():
            answer = policies.ask(turn, self.rollouts, asked)
            self._links.send_grown(turn)
        return answer, turn.actions

    def heard_upto(self) -> dict[str, int]:
        """Return the highest envelope of its newest session from which something was written, by node."""
        return {r.name: register.heard_upto(self.ledger, r) for r in self.ledger.nodes()}

    def node(self, name: str) -> NodeRecord | None:
        """Return a node as it is now, load and last word included."""
        known = self.memory.nodes.get(name)
        return None if known is None else self._present(known)

    def nodes(self) -> list[NodeRecord]:
        """Return every node as it is now, by name."""
        return [self._present(self.memory.nodes[name]) for name in sorted(self.memory.nodes)]

    def is_open(self, name: str) -> bool:
        """Decide whether a node's session is open."""
        return self._links.is_open(name)

    def referenced(self) -> frozenset[str]:
        """Return the content that open tasks need, and that results not long ended refer to."""
        ended = self.ledger.find(TaskFilter(state=TaskState.ENDED, limit=RESULTS_KEPT))
        names = {name for entry in ended if entry.outcome for name in entry.outcome.blobs}
        waiting = (self.ledger.task(task_id) for task_id in self.memory.queue.ids())
        for entry in (*self.ledger.placed(), *waiting):
            names.update(blobs_of(entry.task) if entry and entry.task else ())
        return frozenset(names)

    def _present(self, node: NodeNow) -> NodeRecord:
        state = node.state
        if state is None:
            return node.record
        return msgspec.structs.replace(node.record, running=state.running, queued=state.queued)

    def _start_over(self, turn: Turn, node: str, term: int) -> Turn:
        """The ledger is older than the fleet: begin an epoch in which homes offer again what they wait for.

        Nothing open in it can be trusted: what is, may have ended since, and must not run again.
        """
        for entry in self.ledger.placed():
            custody.tell_to_drop(
                turn, entry.node, entry.task_id, entry.fence or Fence(), "the ledger was lost"
            )
        forgotten = self.ledger.count_tasks()
        self.term = self.ledger.start_over(max(term, self.term))
        self.load(turn.now, turn.wall_s)
        after = self._turn(turn.now, turn.wall_s)
        after.actions = [TermBegun(self.term), *turn.actions]
        after.count("ledgers_started_over", node=node)
        waiting = forgotten[TaskState.PENDING] + forgotten[TaskState.PLACED]
        text = (
            f"knows of term {term}: this ledger was lost or restored from an older copy. Going on as term "
            f"{self.term}; {waiting} unfinished tasks are forgotten until their homes offer them again"
        )
        after.act(Report("error", text, node))
        self._links.ask_birth(after, node)
        return after

    def _turn(self, now: Instant, wall_s: float) -> Turn:
        return Turn(
            ledger=self.ledger,
            memory=self.memory,
            limits=self._limits,
            placement=self._placement,
            guard=self._guard,
            profile=self._profile,
            rollouts=self.rollouts,
            term=self.term,
            now=now,
            wall_s=wall_s,
        )

    def _take(self, turn: Turn, event: Event) -> None:
        match event:
            case Heard(node, kind, body, counter):
                turn.counter = counter
                self._links.give(turn, node, Received(kind, body))
            case BirthDisregarded(node):
                self._links.give(turn, node, BirthRefused())
            case BrokerUp():
                leases.hear_again(turn)
                self._links.give_all(turn, LinkUp())
            case BrokerDown():
                turn.memory.deaf_since = turn.memory.deaf_since or turn.now
                self._links.give_all(turn, LinkDown())
            case CommandsGiven(commands, lane):
                for node, command in commands:
                    if node in turn.memory.nodes:
                        turn.command(node, command, lane)
            case ContentStored(name):
                planning.content_stored(turn, name)
            case PlanMade(plan):
                planning.take_plan(turn, plan)
            case PlanFailed(reason):
                planning.plan_failed(turn, reason)
            case RefusalsCounted(counts):
                for (node, reason), by in counts.items():
                    turn.count("refused", node=node, reason=reason, by=by)
            case PressureChanged(retry_after_s):
                self._links.hold_back(turn, retry_after_s)
            case Ticked():
                self._tick(turn)
            case NodeEnrolled() | NodeRevoked() | NodeReleased():
                self._register(turn, event)

    def _register(self, turn: Turn, event: NodeEnrolled | NodeRevoked | NodeReleased) -> None:
        if isinstance(event, NodeEnrolled):
            register.enrolled(turn, event.record)
            self._links.drop(event.record.name)
            return
        node = turn.memory.nodes.get(event.node)
        if node is None:
            turn.count("refused", node=event.node, reason="unknown_node")
        elif isinstance(event, NodeRevoked):
            register.revoked(turn, node)
            self._links.drop(event.node)
        else:
            register.released(turn, node, is_moved=event.is_moved)
            self._links.release(event.node, is_moved=event.is_moved)

    def _tick(self, turn: Turn) -> None:
        memory = turn.memory
        if memory.last_tick is None or turn.now.since(memory.last_tick) >= 0.5:
            memory.last_tick = turn.now
            self._links.give_all(turn, Tick())
            if memory.deaf_since is None:
                register.watch(turn)
                leases.lapse(turn)
            leases.expire(turn)
            policies.tick(turn)
        if turn.now.since(self._pruned_at) >= PRUNE_EVERY_S:
            self._pruned_at = turn.now
            forgotten = turn.ledger.prune(self._limits.keep_ended)
            if forgotten:
                turn.count("tasks_forgotten", by=forgotten)

    def _reserve(self, entry: LedgerTask) -> None:
        """Take up the room of a placement made before this start."""
        node = self.memory.nodes.get(entry.node)
        if node is None or entry.task is None or entry.state is not TaskState.PLACED:
            return
        made = self.ledger.placements(entry.task_id)
        decision = made[-1].decision if made else None
        node.reservations[entry.task_id] = Reservation(
            task_id=entry.task_id,
            node=entry.node,
            device=(decision.device if decision else None) or "",
            memory_bytes=entry.task.resources.memory_bytes,
        )


def _watch_expiry(turn: Turn, entry: LedgerTask) -> None:
    expiry = turn.expiry_of(entry)
    if expiry is not None:
        turn.memory.expiries[entry.task_id] = expiry
