"""The coordinator of the exhaustive check: the real core with its planner over a ledger in memory.

Owns what of a coordinator outlives its process, and the order of its shell: check, commit, then speak.
"""

from __future__ import annotations

from cloud_coordinator.core import actions as do
from cloud_coordinator.core import events as happened
from cloud_coordinator.core.core import CoordinatorCore
from cloud_coordinator.core.turn import Limits
from cloud_coordinator.ledger.memory import MemoryLedger
from cloud_coordinator.placement.planner import plan
from cloud_coordinator.placement.settings import PlacementSettings
from cloud_coordinator.senders import Senders
from policy.guard.without_engine import AllowAll
from skerry.envelope import Speaker, is_birth_out_of_date
from skerry.errors import EnvelopeRefused
from skerry.identity import PrivateKey
from skerry.node import NodeRecord
from skerry.topics import COORDINATOR, build
from twin.faithful.exhaustive_agent import Outlet, StepClock

#: Two waits without a word, and a placement may be made again elsewhere.
LEASE_S = 45.0
#: Plans are asked for at once; a node whose last word came before the latest wait is not stale yet.
LIMITS = Limits(batch_ms=0.0, lease_s=LEASE_S, state_interval_s=12.0)


class CloudPart:
    """One coordinator."""

    def __init__(self, fleet: str, key: PrivateKey, nodes: tuple[NodeRecord, ...]) -> None:
        """nodes: enrolled already."""
        self.fleet, self.key = fleet, key
        self.clock = StepClock("boot-coordinator")
        self.disk = MemoryLedger(epoch="ledger-1")
        self.outlet = Outlet()
        self.seen: list[tuple[str, ...]] = []
        self.asked: do.MakePlan | None = None
        for record in nodes:
            self.disk.put_node(record)
        self._start()

    # --- its steps

    def restart(self) -> None:
        """Begin a process on what the ledger holds."""
        self._start()

    def hear(self, topic: str, payload: bytes) -> None:
        """Have a message arrive: see Runtime.on_message."""
        try:
            opened = self.senders.open(topic, payload)
        except EnvelopeRefused as refused:
            if is_birth_out_of_date(topic, refused):
                self._handle(happened.BirthDisregarded(self.senders.claimed(topic)))
        else:
            self._handle(happened.Heard(opened.topic.node, opened.kind, opened.body, opened.counter))

    def make_plan(self) -> None:
        """Have the plan that was asked for made."""
        asked, self.asked = self.asked, None
        assert asked is not None
        made = plan(
            asked.requests,
            asked.snapshot,
            PlacementSettings(),
            guard=self.guard,
            profile=self.core.profile,
            wall_s=self.clock.wall_s(),
        )
        self._handle(happened.PlanMade(made))

    def time_passed(self) -> None:
        """Do what the clock, which was moved, makes due."""
        self._handle(happened.Ticked())

    # --- inside

    def _start(self) -> None:
        self.guard = AllowAll()
        self.core = CoordinatorCore(
            self.disk,
            guard=self.guard,
            now=self.clock.now(),
            wall_s=self.clock.wall_s(),
            limits=LIMITS,
            placement=PlacementSettings(),
        )
        self.asked = None
        self.senders = Senders(self.core.nodes(), self.core.heard_upto())
        self._speaker = Speaker(self.key, source=COORDINATOR, session=self.core.term)
        self._handle(happened.BrokerUp())

    def _handle(self, event: happened.Event) -> None:
        with self.disk.transaction():
            actions = self.core.handle(event, self.clock.now(), self.clock.wall_s())
        for action in actions:
            self._perform(action)

    def _perform(self, action: do.Action) -> None:
        match action:
            case do.Say():
                topic = build(self.fleet, action.node, action.leaf)
                payload = self._speaker.seal(topic, action.kind, action.body)
                self.outlet.publish(topic, payload, retain=action.retain)
            case do.MakePlan():
                self.asked = action
            case do.KeyChanged(record):
                self.senders.learn(record)
            case do.TermBegun(term):
                self._speaker = self._speaker.in_session(term)
            case do.Wake() | do.TaskPlacedFirst() | do.RepliesKept() | do.Report():
                pass  # the next wait, figures, people
