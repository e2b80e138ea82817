"""The witness: its own account of what was promised, what took effect and what ended, beside the stores.

Owns the invariants (laws 1 to 7) and what violates them. It sees commits and effects as they happen and never
asks a store for what it can know by itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from devices.port import Job
from skerry.fence import parse_fence
from skerry.ids import TaskId
from skerry.messages import Lane
from skerry.task import TaskSpec
from task_queue.operations import Advanced, Answer, Changed, Enqueue, Enqueued, Operation, TrimOutbox
from task_queue.store import Store, TaskFilter
from task_queue.task import FINAL, State
from twin.faithful.agent import Node

#: Ends that are looked up at the coordinator when all is over.
NEWEST = 5000
#: Violations kept with their words; more are only counted.
KEPT = 50


@dataclass(slots=True)
class Promise:
    """A task that a store has accepted. is_heard: its producer was told so, and relies on it."""

    home: str
    task: TaskSpec
    at_s: float  #: the world's seconds at acceptance
    is_heard: bool = False


@dataclass(slots=True)
class Violation:
    """A law that was broken, when, where and how."""

    law: int
    at_s: float
    node: str
    what: str
    task_id: str = ""


@dataclass
class Witness:
    """Everything that was seen."""

    now_s: Callable[[], float]
    #: Node, epoch of its store, lane → up to where the ledger holds it.
    cloud_mark: Callable[[str, str, Lane], int]
    open: dict[TaskId, Promise] = field(default_factory=dict)
    ended: Counter[State] = field(default_factory=Counter)
    submitted: int = 0
    done_twice: int = 0
    gone: int = 0  #: accepted before their home's disk was damaged, and nowhere since
    effects: int = 0
    longest_s: float = 0.0  #: from a task's acceptance to its end
    lived_s: float = 0.0  #: the sum of that over all that have ended
    violations: list[Violation] = field(default_factory=list)
    count: int = 0
    _damaged_s: dict[str, float] = field(default_factory=dict)  #: node → when its disk was damaged last
    _asked: dict[tuple[str, str], TaskId] = field(default_factory=dict)  #: unanswered node and key → task
    _done: dict[TaskId, str] = field(default_factory=dict)  #: task → its home
    _running: dict[TaskId, dict[str, str]] = field(default_factory=dict)  #: task → node → fence
    _begun_once: set[TaskId] = field(default_factory=set)

    def violated(self, law: int, node: str, what: str, task_id: str = "") -> None:
        """Note a violation."""
        self.count += 1
        if len(self.violations) < KEPT:
            self.violations.append(Violation(law, self.now_s(), node, what, task_id))

    # --- what happens at a node

    def accepted(self, node: Node, task_id: TaskId, task: TaskSpec, is_new: bool) -> None:
        """A producer was answered: from now on the task may not be lost (law 1)."""
        self.submitted += 1
        if task.idempotency_key is not None:
            self._asked.pop((node.name, task.idempotency_key), None)
        if task_id in self._done:
            return
        promise = self.open.get(task_id)
        if promise is None:
            self.violated(1, node.name, "it was acknowledged before it was committed", task_id)
        else:
            promise.is_heard = True

    def committed(self, node: Node, operations: Sequence[Operation], answers: Sequence[Answer]) -> None:
        """A commit of a node's store is on its disk."""
        for operation, answer in zip(operations, answers, strict=True):
            match answer:
                case Enqueued(task_id=task_id, is_new=True):
                    if isinstance(operation, Enqueue) and operation.placement is None:
                        self.open[task_id] = Promise(node.name, operation.task, self.now_s())
                        self._requested(node, task_id, operation.task)
                case Changed(task_id=task_id, state=state, was=was) if state in FINAL:
                    if state is State.EXPIRED and was not in FINAL:
                        self._expired(node, task_id)
                    self._ended(node, task_id, state, was)
                case Advanced():
                    for task_id, was in answer.expired:
                        self._expired(node, task_id)
                        self._ended(node, task_id, State.EXPIRED, was)
                    for task_id, was in answer.given_up:
                        self._ended(node, task_id, State.UNKNOWN, was)
                case _:
                    pass  # it ends nothing
            if isinstance(operation, TrimOutbox):
                self._trimmed(node, operation)

    def _requested(self, node: Node, task_id: TaskId, task: TaskSpec) -> None:
        """A request that is repeated because its answer was not heard is one task."""
        if task.idempotency_key is None:
            return
        known = self._asked.setdefault((node.name, task.idempotency_key), task_id)
        if known != task_id:
            self.violated(3, node.name, f"one request became two tasks, {known} before", task_id)

    def settled(self, node: Node) -> None:
        """A store was opened again: attempts that a restart ended for good are ends like any other."""
        for task_id, promise in list(self.open.items()):
            record = node.agent.parts.store.get(task_id) if promise.home == node.name and node.agent else None
            if record is not None and record.state in FINAL:
                self._ended(node, task_id, record.state, State.RUNNING)
        if node.has_lost_power and node.agent is not None:
            self._found(node, node.agent.parts.store)

    def _found(self, node: Node, store: Store) -> None:
        """What the commit did in whose middle the power went, nobody has heard: it may be there or not."""
        before: TaskId | None = None
        while page := store.find(TaskFilter(limit=_PAGE, before=before)):
            before = page[-1].task_id
            for record in page:
                is_own = record.placement is None and record.state not in FINAL
                if is_own and record.task_id not in self.open and record.task_id not in self._done:
                    self.open[record.task_id] = Promise(node.name, record.task, self.now_s())
            if all(record.task_id in self._done for record in page):
                return

    def _ended(self, node: Node, task_id: TaskId, state: State, was: State | None) -> None:
        """An end counts where the task was submitted; the same word again changes nothing."""
        if was in FINAL:
            return
        promise = self.open.get(task_id)
        if promise is not None and promise.home == node.name:
            del self.open[task_id]
            self._done[task_id] = node.name
            self.ended[state] += 1
            lived_s = self.now_s() - promise.at_s
            self.longest_s, self.lived_s = max(self.longest_s, lived_s), self.lived_s + lived_s
        elif self._done.get(task_id) == node.name:
            self.done_twice += 1
            self.violated(3, node.name, f"it ended a second time, as {state}", task_id)

    def _expired(self, node: Node, task_id: TaskId) -> None:
        promise = self.open.get(task_id)
        if promise is None or promise.task.expires_after_s is None or promise.home != node.name:
            return
        lived_s, given_s = self.now_s() - promise.at_s, promise.task.expires_after_s
        if lived_s < given_s - 1.0:
            self.violated(5, node.name, f"it expired after {lived_s:.1f} s of {given_s:g}", task_id)

    def _trimmed(self, node: Node, trim: TrimOutbox) -> None:
        agent = node.agent
        if agent is None:
            return
        held = self.cloud_mark(node.name, trim.epoch or agent.parts.store.epoch, trim.lane)
        if trim.upto > held:
            self.violated(2, node.name, f"{trim.lane} was trimmed up to {trim.upto}, the ledger holds {held}")

    def effect(self, node: Node, job: Job, what: str) -> None:
        """An attempt begins, is over, or took effect."""
        task_id = TaskId(job.task_id)
        running = self._running.setdefault(task_id, {})
        if what == "begins":
            if node.name in running and running[node.name] == job.fence:
                self.violated(3, node.name, f"two attempts under one fence {job.fence}", task_id)
            if self._done.get(task_id) == node.name:
                self.violated(3, node.name, "a finished task runs again", task_id)
            promise = self.open.get(task_id)
            if promise is not None and promise.task.effect == "at_most_once":
                if task_id in self._begun_once:
                    self.violated(3, node.name, "an at-most-once task was begun a second time", task_id)
                self._begun_once.add(task_id)
            earlier = running.get(node.name)
            if earlier is not None and parse_fence(job.fence) <= parse_fence(earlier):
                self.violated(3, node.name, f"fence {job.fence} does not grow over {earlier}", task_id)
            running[node.name] = job.fence
        else:
            self.effects += 1
            self._running.pop(task_id, None)

    def damaged(self, node: Node) -> None:
        """Its disk is damaged: what it holds may be gone with it, and what it says may be said again."""
        self._damaged_s[node.name] = self.now_s()
        for known in [known for known in self._asked if known[0] == node.name]:
            del self._asked[known]

    # --- at certain moments

    def look_at_bounds(self, node: Node) -> None:
        """Law 4: the store is within its bound."""
        agent = node.agent
        if agent is None:
            return
        used, most = agent.parts.store.depth().bytes_used, node.plan.limits.max_bytes
        if used > most:
            self.violated(4, node.name, f"{used} bytes in use, {most} are allowed")

    def look_at_running(self, node: Node) -> None:
        """Law 7: what is running in the store is running in the process."""
        agent = node.agent
        if agent is None:
            return
        claimed = agent.core.entries
        for record in agent.parts.store.find(_RUNNING):
            if record.task_id not in claimed:
                self.violated(7, node.name, "it is running in the store and nowhere else", record.task_id)

    def told(self, nodes: Sequence[Node], knows_end: Callable[[TaskId], bool]) -> None:
        """Law 2: what has left a node's outbox, the coordinator knows.

        knows_end: whether its ledger says that a task has ended. Only the newest are asked for, and only of
        nodes that owe nothing and have evicted nothing.
        """
        settled = {node.name for node in nodes if _owes_nothing(node)} - self._damaged_s.keys()
        for task_id in list(self._done)[-NEWEST:]:
            home = self._done[task_id]
            if home in settled and not knows_end(task_id):
                self.violated(2, home, "its end was told and the coordinator does not know it", task_id)

    def at_the_end(self, nodes: Sequence[Node], missing: Callable[[Node, TaskId], str]) -> int:
        """Every promise must have been kept by now; returns how many tasks are lost."""
        homes = {node.name: node for node in nodes}
        for name in sorted(self._damaged_s):
            self.settled(homes[name])  # what cannot be read ends without a commit of its own
        lost = 0
        for task_id, promise in list(self.open.items()):
            where = missing(homes[promise.home], task_id)
            if where:
                self.violated(7, promise.home, f"it has not ended: {where}", task_id)
            elif promise.at_s <= self._damaged_s.get(promise.home, 0.0):
                self.gone += 1
            elif promise.is_heard:
                lost += 1
                self.violated(1, promise.home, "it was acknowledged and is nowhere", task_id)
        return lost


def _owes_nothing(node: Node) -> bool:
    if node.agent is None:
        return False
    store = node.agent.parts.store
    return not sum(store.depth().outbox.values()) and not store.losses()


_PAGE = 200
_RUNNING = TaskFilter(states=(State.RUNNING,), limit=200)
