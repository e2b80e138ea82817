"""The queue's testing kit: stores with their clocks, short words for what tests do, invariants."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import msgspec

from skerry.decision import Decision
from skerry.fence import Fence
from skerry.ids import TaskId, TaskIdSource
from skerry.messages import Lane, Outcome, TaskEnded
from skerry.testing import ManualClock, a_task
from task_queue.limits import Limits
from task_queue.memory_store import MemoryStore
from task_queue.messages import without_head
from task_queue.operations import (
    Answer,
    Claim,
    Claimed,
    Enqueue,
    Enqueued,
    Finish,
    Operation,
    Refused,
    Start,
    Started,
)
from task_queue.retention import Amount, RowClass, class_of
from task_queue.sqlite_store import SqliteStore
from task_queue.store import Store, TaskFilter, TaskRecord
from task_queue.task import FINAL, OPEN, State

#: The same work under every adapter: no ballast, and no free space kept, on a test's small disk.
ROOMY = Limits(ballast_bytes=0, free_floor_bytes=0)


class OpenStore(Protocol):
    """Opens (again) the store of one test."""

    def __call__(self, clock: ManualClock, *, reports: bool = True, limits: Limits = ROOMY) -> Store:
        """Return the store in a new session."""
        ...


def sqlite_opener(folder: Path) -> OpenStore:
    """Return an opener of one database file."""

    def open_store(clock: ManualClock, *, reports: bool = True, limits: Limits = ROOMY) -> Store:
        return SqliteStore.open(
            folder / "queue.db", now=clock.now(), wall_s=clock.wall_s, reports=reports, limits=limits
        )

    return open_store


def memory_opener() -> OpenStore:
    """Return an opener of one memory store, which lives on between openings."""
    opened: list[MemoryStore] = []

    def open_store(clock: ManualClock, *, reports: bool = True, limits: Limits = ROOMY) -> Store:
        if opened:
            opened[0].reopen(clock.now())
        else:
            opened.append(MemoryStore(now=clock.now(), wall_s=clock.wall_s, reports=reports, limits=limits))
        return opened[0]

    return open_store


class QueueDriver:
    """A store with its clock and ids: says in one word what takes three values to write."""

    def __init__(
        self, open_store: Callable[..., Store], clock: ManualClock | None = None, **options: Any
    ) -> None:
        """Open the store.  options: those of the opener."""
        self.clock = clock or ManualClock()
        self.ids = TaskIdSource(self.clock.wall_s)
        self._open = open_store
        self._options = options
        self.store = open_store(self.clock, **options)

    def apply(self, *ops: Operation) -> list[Answer]:
        """Commit operations now."""
        return self.store.apply(ops, now=self.clock.now())

    def one(self, op: Operation) -> Answer:
        """Commit one operation and return its answer."""
        return self.apply(op)[0]

    def enqueue(
        self, *, placement: Fence | None = None, lease_s: float | None = None, **fields: Any
    ) -> TaskId:
        """Accept a task and return its id; fields are TaskSpec's."""
        task_id = self.ids.next()
        answer = self.one(
            Enqueue(
                task_id=task_id, task=a_task(**fields), placement=placement, lease_s=lease_s, home_node="home"
            )
        )
        assert isinstance(answer, Enqueued), answer
        return answer.task_id

    def claim(self, limit: int = 1) -> list[TaskId]:
        """Claim tasks and return their ids."""
        answer = self.one(Claim(limit=limit))
        assert isinstance(answer, Claimed), answer
        return [claimed.task_id for claimed in answer.tasks]

    def start(self, task_id: TaskId) -> Fence:
        """Start a claimed task and return its fence."""
        answer = self.one(Start(task_id=task_id, device="cpu0"))
        assert isinstance(answer, Started), answer
        return answer.fence

    def run(self, **fields: Any) -> tuple[TaskId, Fence]:
        """Accept, claim and start one task; nothing else may be ready."""
        task_id = self.enqueue(**fields)
        assert self.claim() == [task_id]
        return task_id, self.start(task_id)

    def finish(self, task_id: TaskId, fence: Fence) -> Answer:
        """Commit a success."""
        return self.one(Finish(task_id=task_id, fence=fence, outcome=SUCCEEDED))

    def drain(self, window: int = 50) -> list[TaskId]:
        """Run everything that is ready to a success, a window at a time, and return the ids in that order."""
        ended: list[TaskId] = []
        while claimed := self.claim(window):
            started = self.apply(*(Start(task_id=task_id, device="cpu0") for task_id in claimed))
            fences = [answer.fence for answer in started if isinstance(answer, Started)]
            assert len(fences) == len(claimed), started
            pairs = zip(claimed, fences, strict=True)
            self.apply(*(Finish(task_id=task_id, fence=fence, outcome=SUCCEEDED) for task_id, fence in pairs))
            ended += claimed
        return ended

    def state(self, task_id: TaskId) -> State:
        """Return a task's state."""
        return self.record(task_id).state

    def record(self, task_id: TaskId) -> TaskRecord:
        """Return a task."""
        record = self.store.get(task_id)
        assert record is not None, task_id
        return record

    def kinds(self, lane: Lane) -> list[str]:
        """Return the kinds of the rows that wait in a lane."""
        return [row.kind for row in self.store.outbox(lane, 0, limit=10_000, limit_bytes=1 << 30)]

    def kill(self) -> None:
        """End the session as a kill does, and begin the next one."""
        self.store.close()
        self.store = self._open(self.clock, **self._options)

    def reboot(self, *, off_s: float = 0.0) -> None:
        """Cut the power, wait, boot."""
        self.clock.reboot(f"boot-{self.store.session + 1}", off_s=off_s)
        self.kill()


SUCCEEDED = Outcome(status="succeeded", result=1)
FAILED = Outcome(status="failed", error="exit status 1")


def check_invariants(store: Store) -> None:
    """Assert what must hold of any store at any time; for the end of every test."""
    records = [record for state in State for record in _all_in(store, state)]
    _check_counters(store, records)
    _check_order(records)
    for record in records:
        _check_record(record, store.get(record.task_id))
    _check_outbox(store)


def _check_outbox(store: Store) -> None:
    """Every row is counted in its lane and in its class."""
    depth, by_class = store.depth(), dict.fromkeys(RowClass, Amount())
    for lane in Lane:
        rows = store.outbox(lane, 0, limit=1_000_000, limit_bytes=1 << 40)
        seqs = [row.seq for row in rows]
        assert seqs == sorted(set(seqs)), f"{lane}: rows out of order"
        assert len(seqs) == depth.outbox[lane], f"{lane}: {len(seqs)} rows, counted {depth.outbox}"
        for row in rows:
            row_class = class_of(row.kind)
            stored = without_head(row.kind, row.key, bytes(row.body))
            by_class[row_class] = by_class[row_class].plus(Amount(1, len(stored)))
    assert depth.by_class == by_class, f"classes counted {depth.by_class}, the rows say {by_class}"


def _all_in(store: Store, state: State) -> list[TaskRecord]:
    return store.find(TaskFilter(states=(state,), limit=1_000_000))


def _check_counters(store: Store, records: list[TaskRecord]) -> None:
    counted = Counter(record.state for record in records)
    kept = {state: count for state, count in store.depth().by_state.items() if count}
    assert kept == dict(counted), f"counters say {kept}, the rows {dict(counted)}"


def _check_order(records: list[TaskRecord]) -> None:
    """At most one task of an ordering key may run or be claimed, and a blocked one waits for another."""
    by_key: dict[tuple[str, str], list[State]] = {}
    for record in records:
        if record.task.ordering_key is not None and record.state in OPEN:
            by_key.setdefault((record.task.tenant, record.task.ordering_key), []).append(record.state)
    for key, states in by_key.items():
        free = [state for state in states if state not in (State.BLOCKED, State.DELAYED)]
        assert len(free) <= 1, f"{key}: {states}"
        assert free or State.DELAYED in states, f"{key}: all blocked, by nothing"


def _check_record(listed: TaskRecord, record: TaskRecord | None) -> None:
    assert record is not None
    assert record.state is listed.state
    fences = [attempt.fence for attempt in record.attempts]
    assert len(set(fences)) == len(fences), f"{record.task_id}: two attempts under one fence: {fences}"
    running = [attempt for attempt in record.attempts if not attempt.ended]
    assert len(running) == (record.state is State.RUNNING), f"{record.task_id}: {record.state}, {running}"
    assert (record.ended_wall_s is not None) == (record.state in FINAL), f"{record.task_id}: {record}"


#: Three placements of one coordinator, in the order it gave them out.
FIRST, SECOND, THIRD = Fence((1, 1)), Fence((1, 2)), Fence((1, 3))


def a_decision(task_id: str, reason: str = "nothing here can run it") -> Decision:
    """Return a decision with a reason."""
    return Decision(task_id=task_id, decided_by="baseline:fifo", reason=reason)


def reason_of(answer: object) -> str:
    """Return why an operation was refused; every refusal must say so in words too."""
    assert isinstance(answer, Refused), answer
    assert answer.message
    return answer.reason


def place(driver: QueueDriver, task_id: TaskId, fence: Fence, **fields: Any) -> Answer:
    """Place a known task here."""
    return driver.one(Enqueue(task_id=task_id, task=a_task(**fields), placement=fence, lease_s=60.0))


def ended_rows(driver: QueueDriver, lane: Lane) -> list[TaskEnded]:
    """Return the reports of ends that wait in a lane."""
    rows = driver.store.outbox(lane, 0, limit=10_000, limit_bytes=1 << 30)
    return [msgspec.json.decode(row.body, type=TaskEnded) for row in rows if row.kind == "task.ended"]
