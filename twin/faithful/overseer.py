"""What is seen of the coordinator while it works: whom it hears, what it places where, whom it calls what.

Owns law 6 (a node that is only cut off keeps its work until its lease has run out), by its own account.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

from cloud_coordinator.core import events as happened
from cloud_coordinator.ledger.sqlite import SqliteLedger
from cloud_coordinator.ledger.values import LedgerTask, Mark, Placement, TaskState
from cloud_coordinator.runtime import Runtime
from skerry.messages import Lane
from skerry.node import NodeRecord

Violated = Callable[[int, str, str, str], None]


class Overseer:
    """Its own account of the coordinator."""

    def __init__(
        self, now_s: Callable[[], float], violated: Violated, *, lease_s: float, state_interval_s: float
    ) -> None:
        """violated: told of law, node, what and task.  lease_s, state_interval_s: the coordinator's."""
        self._now_s, self._violated = now_s, violated
        self._lease_s, self._pause_s = lease_s, state_interval_s
        self._heard_s: dict[str, float] = {}
        self._placed: dict[str, str] = {}  #: task → node
        self._times: Counter[str] = Counter()  #: open task → placements
        self.most_placements = 0
        self.statuses: dict[str, set[str]] = {}  #: node → what it was called
        self.sheddings = 0
        #: Called with a node and lane whose rows were taken, and up to which.
        self.marked: Callable[[str, Lane, int], None] = lambda node, lane, upto: None

    def heard(self, event: happened.Event) -> None:
        """The coordinator was given an event."""
        if isinstance(event, happened.Heard):
            self._heard_s[event.node] = self._now_s()

    def task_written(self, task: LedgerTask) -> None:
        """The ledger holds this of a task now: whoever lost it must have been silent long enough."""
        node = self._placed.get(task.task_id)
        if node is not None and (task.state is TaskState.PENDING or task.node != node):
            self._taken_from(node, task.task_id)
        if task.state is TaskState.PLACED:
            self._placed[task.task_id] = task.node
        else:
            self._placed.pop(task.task_id, None)
        if task.state is TaskState.ENDED:
            self._times.pop(task.task_id, None)

    def placed(self, placement: Placement) -> None:
        """A placement was made."""
        self._times[placement.task_id] += 1
        self.most_placements = max(self.most_placements, self._times[placement.task_id])

    def called(self, record: NodeRecord) -> None:
        """A node is called what the register says."""
        self.statuses.setdefault(record.name, set()).add(record.status)

    def _taken_from(self, node: str, task_id: str) -> None:
        """A node in touch has let go of it itself; a silent one must have been silent for its lease."""
        silent_s = self._now_s() - self._heard_s.get(node, 0.0)
        if 3 * self._pause_s < silent_s < self._lease_s - 2 * self._pause_s:
            what = f"taken from it after {silent_s:.1f} s of silence, its lease is {self._lease_s:g} s"
            self._violated(6, node, what, task_id)


class WatchedLedger(SqliteLedger):
    """A ledger that is overseen."""

    def __init__(self, path: Path, overseer: Overseer) -> None:
        """Open the file."""
        self._overseer = overseer
        super().__init__(path)
        self._db.execute("PRAGMA synchronous = OFF")  # no power goes here: no real disk is waited for

    def put_task(self, task: LedgerTask) -> None:
        """See Ledger."""
        super().put_task(task)
        self._overseer.task_written(task)

    def add_placement(self, placement: Placement) -> None:
        """See Ledger."""
        super().add_placement(placement)
        self._overseer.placed(placement)

    def put_node(self, record: NodeRecord) -> None:
        """See Ledger."""
        super().put_node(record)
        self._overseer.called(record)

    def put_mark(self, node: str, epoch: str, lane: Lane, mark: Mark) -> None:
        """See Ledger."""
        super().put_mark(node, epoch, lane, mark)
        if mark.upto:
            self._overseer.marked(node, lane, mark.upto)

    def count(self, name: str, *, node: str = "", reason: str = "", by: int = 1) -> None:
        """See Ledger."""
        super().count(name, node=node, reason=reason, by=by)
        self._overseer.sheddings += name == "held_back"


class WatchedRuntime(Runtime):
    """A runtime that is overseen. overseer: set before it starts."""

    overseer: Overseer

    def post(self, event: happened.Event) -> None:
        """See Runtime."""
        self.overseer.heard(event)
        super().post(event)
