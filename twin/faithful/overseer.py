"""What is seen of the coordinator while it works: whom it hears, what it places where, whom it calls what.

Owns law 6 (a node that is only cut off keeps its work until its lease has run out), the part of law 3 that
is the coordinator's (an end counts under the current placement only), and that an old session's end closes no
newer one; each by its own account.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from functools import partial
from pathlib import Path

import msgspec

from cloud_coordinator.core import events as happened
from cloud_coordinator.core.actions import Action, Say
from cloud_coordinator.core.core import CoordinatorCore
from cloud_coordinator.ledger.sqlite import SqliteLedger
from cloud_coordinator.ledger.values import LedgerTask, Mark, Placement, TaskState
from cloud_coordinator.rollout.book import ROLLOUT
from cloud_coordinator.runtime import Runtime
from skerry.link.wire import KINDS
from skerry.messages import Birth, Lane, Presence, State, StateAck, StreamBatch
from skerry.node import NodeRecord

_BIRTH, _PRESENCE, _STATE, _ROWS = KINDS[Birth], KINDS[Presence], KINDS[State], KINDS[StreamBatch]
_STATE_ACK = KINDS[StateAck]
Violated = Callable[[int, str, str, str], None]
_Job = Callable[[CoordinatorCore], list[Action]]


class _Holds(msgspec.Struct, frozen=True):
    """What counts here of a State."""

    holds: tuple[str, ...] = ()


#: What was said just now may still wait behind what was begun before.
_IN_HAND_S = 0.1
#: Whatever a node says is acted on within this.
_IN_TOUCH_S = 2.0
_read_holds = msgspec.json.Decoder(_Holds).decode


class _State(msgspec.Struct, frozen=True):
    """What counts here of a rollout."""

    state: str


_read_state = msgspec.json.Decoder(_State).decode


class Overseer:
    """Its own account of the coordinator."""

    def __init__(
        self, now_s: Callable[[], float], violated: Violated, *, lease_s: float, state_interval_s: float
    ) -> None:
        """violated: told of law, node, what and task.  lease_s, state_interval_s: the coordinator's."""
        self._now_s, self._violated = now_s, violated
        self._lease_s, self._pause_s = lease_s, state_interval_s
        self._heard_s: dict[str, float] = {}
        self._placed: dict[str, LedgerTask] = {}
        #: Node → what it holds and when it said so, if that is the last it said.
        self._holds: dict[str, tuple[float, frozenset[str]]] = {}
        self._renewed_s: dict[str, float] = {}  #: placed task → since when its lease counts
        self._times: Counter[str] = Counter()  #: open task → placements
        self.most_placements = 0
        self.statuses: dict[str, set[str]] = {}  #: node → what it was called
        self.sheddings = 0
        self.salvages = 0
        self.rollout_paths: dict[str, list[str]] = {}  #: rollout → the states it went through
        self._births: deque[tuple[float, str]] = deque()  #: of the last second, by whom
        self.most_births = 0  #: of different nodes, within one second, since they first came together
        #: Node, epoch of its store, lane → up to where the ledger holds it.
        self.marks: dict[tuple[str, str, Lane], int] = {}
        #: Called with a node and lane whose rows were taken, and up to which.
        self.marked: Callable[[str, Lane, int], None] = lambda node, lane, upto: None

    def heard(self, event: happened.Event) -> None:
        """The coordinator was given an event."""
        if not isinstance(event, happened.Heard):
            return
        is_back = event.node in self._heard_s
        self._heard_s[event.node] = self._now_s()
        if event.kind == _BIRTH and is_back:
            self._returned(event.node)

    def taken_up(self, node: str, report: bytes) -> None:
        """The coordinator has answered a node's report: the leases it names count from now."""
        holds = _read_holds(report).holds
        self._holds[node] = (self._now_s(), frozenset(holds))
        for task_id in holds:
            if task_id in self._placed and self._placed[task_id].node == node:
                self._renewed_s[task_id] = self._now_s()

    def rows_come(self, node: str) -> None:
        """Rows of a node are taken: they may say that it has let go of something."""
        self._holds.pop(node, None)

    def task_written(self, task: LedgerTask) -> None:
        """The ledger holds this of a task now: whoever lost it must have been silent long enough."""
        before = self._placed.pop(task.task_id, None)
        renewed_s = self._renewed_s.pop(task.task_id, self._now_s())
        if task.state is TaskState.PLACED:
            self._placed[task.task_id] = task
            is_same = before is not None and before.fence == task.fence
            self._renewed_s[task.task_id] = renewed_s if is_same else self._now_s()
        if task.state is TaskState.ENDED:
            self._times.pop(task.task_id, None)
        is_over = task.state in (TaskState.PENDING, TaskState.ENDED)
        if before is not None and (is_over or task.node != before.node):
            self._taken_from(before.node, task.task_id, renewed_s)
        if before is not None and task.state is TaskState.ENDED:
            self._ended(before, task)

    def placed(self, placement: Placement) -> None:
        """A placement was made."""
        self._times[placement.task_id] += 1
        self.most_placements = max(self.most_placements, self._times[placement.task_id])

    def rollout_written(self, rollout: str, state: str) -> None:
        """A rollout is in this state now."""
        path = self.rollout_paths.setdefault(rollout, [])
        if path[-1:] != [state]:
            path.append(state)

    def called(self, record: NodeRecord) -> None:
        """A node is called what the register says."""
        self.statuses.setdefault(record.name, set()).add(record.status)

    def _returned(self, node: str) -> None:
        births = self._births
        births.append((self._now_s(), node))
        while births[0][0] <= self._now_s() - 1.0:
            births.popleft()
        self.most_births = max(self.most_births, len({name for _, name in births}))

    def _ended(self, before: LedgerTask, task: LedgerTask) -> None:
        """Whoever ends a placed task holds its placement, or is its home."""
        assert before.fence is not None
        is_under = task.fence is not None and task.fence.is_under(before.fence)
        if not is_under and task.outcome is not None and task.node != task.home_node:
            what = f"its end under {task.fence} counts, {before.node} holds {before.fence}"
            self._violated(3, task.node, what, task.task_id)

    def closed_by_an_old_one(self, node: str, session: int, newest: int) -> None:
        """The good-bye of an old session has closed a newer one."""
        self._violated(2, node, f"the end of session {session} closed session {newest}", "")

    def _taken_from(self, node: str, task_id: str, renewed_s: float) -> None:
        """A node in touch has let go of it itself; from a silent one it is taken when its lease is over."""
        now_s = self._now_s()
        silent_s, leased_s = now_s - self._heard_s.get(node, 0.0), now_s - renewed_s
        said_s, holds = self._holds.get(node, (0.0, frozenset()))
        if task_id in holds and _IN_HAND_S < now_s - said_s <= 1.5 * self._pause_s:
            what = f"taken from it, though it said {now_s - said_s:.1f} s ago that it holds it"
            self._violated(6, node, what, task_id)
        elif silent_s > _IN_TOUCH_S and leased_s < self._lease_s - 3 * self._pause_s:
            what = f"taken from it {leased_s:.1f} s after its lease began anew, which is {self._lease_s:g} s"
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
        self._overseer.marks[node, epoch, lane] = mark.upto
        if mark.upto:
            self._overseer.marked(node, lane, mark.upto)

    def count(self, name: str, *, node: str = "", reason: str = "", by: int = 1) -> None:
        """See Ledger."""
        super().count(name, node=node, reason=reason, by=by)
        self._overseer.sheddings += name == "held_back"
        self._overseer.salvages += name == "stores_salvaged"

    def put_document(self, kind: str, name: str, body: bytes) -> None:
        """See Ledger."""
        super().put_document(kind, name, body)
        if kind == ROLLOUT:
            self._overseer.rollout_written(name, _read_state(body).state)


class WatchedRuntime(Runtime):
    """A runtime that is overseen. overseer: set before it starts."""

    overseer: Overseer

    def post(self, event: happened.Event) -> None:
        """See Runtime."""
        self.overseer.heard(event)
        super().post(event)

    def _job(self, event: happened.Event) -> _Job:
        """See Runtime; looks what becomes of reports, rows and good-byes."""
        job = super()._job(event)
        if not isinstance(event, happened.Heard):
            return job
        looks = {_PRESENCE: self._at_good_bye, _STATE: self._at_report, _ROWS: self._at_rows}
        look = looks.get(event.kind)
        return job if look is None else partial(look, event, job)

    def _at_rows(self, event: happened.Heard, job: _Job, core: CoordinatorCore) -> list[Action]:
        self.overseer.rows_come(event.node)
        return job(core)

    def _at_report(self, event: happened.Heard, job: _Job, core: CoordinatorCore) -> list[Action]:
        actions = job(core)
        if any(isinstance(action, Say) and action.kind == _STATE_ACK for action in actions):
            self.overseer.taken_up(event.node, event.body)
        return actions

    def _at_good_bye(self, event: happened.Heard, job: _Job, core: CoordinatorCore) -> list[Action]:
        """Look whether it closes a session that is newer than it."""
        record, was_open = core.node(event.node), core.is_open(event.node)
        actions = job(core)
        said = msgspec.json.decode(event.body, type=Presence)
        if record and was_open and said.session < record.session and not core.is_open(event.node):
            self.overseer.closed_by_an_old_one(event.node, said.session, record.session)
        return actions
