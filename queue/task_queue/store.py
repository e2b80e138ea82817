"""The store port: one synchronous owner of the queue's durable state. SQLite and memory provide it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import msgspec

from skerry.clock import Instant
from skerry.decision import Decision
from skerry.fence import Fence
from skerry.ids import TaskId
from skerry.messages import Lane, Outcome, Row, StoreSalvaged
from skerry.task import TaskSpec
from task_queue.operations import Answer, Operation
from task_queue.recurring_row import RecurringRecord
from task_queue.retention import Amount, RowClass
from task_queue.task import State
from task_queue.watermarks import Level, Usage


class Attempt(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One try, with the decision that led to it."""

    fence: Fence
    device: str
    started_wall_s: float
    decision: Decision | None = None
    ended: str = ""  #: succeeded, failed, interrupted, cancelled, expired; empty while it runs
    error: str = ""
    runtime_s: float = 0.0


class StoryEvent(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Something that happened to a task, durably.

    what: `accepted`, an Event that moved it, or `noted` for word about one that is elsewhere.
    """

    what: str
    at_wall_s: float
    on_s: float | None = None  #: powered-on seconds; None where an older version kept none
    fence: Fence | None = None  #: of the attempt that started, or of the placement
    device: str = ""
    node: str = ""  #: where it was placed
    decision: Decision | None = None
    outcome: Outcome | None = None  #: of its end
    error: str = ""  #: why, where there is no outcome
    runtime_s: float = 0.0


class TaskRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Everything the store knows of one task."""

    task_id: TaskId
    task: TaskSpec
    state: State
    attempt: int = 0
    placement: Fence | None = None
    home_node: str = ""
    placed_on: str = ""  #: of a task that was handed over: where it went
    accepted_wall_s: float = 0.0
    ended_wall_s: float | None = None
    fence: Fence | None = None  #: under which it ended
    outcome: Outcome | None = None
    waiting_for: str = ""
    decision: Decision | None = None  #: the latest one made before an attempt (hand-over, parking, placement)
    attempts: tuple[Attempt, ...] = ()


def scoped_key(tenant: str, key: str | None) -> str | None:
    """Return a tenant's key as stored: a line feed keeps tenants apart whatever they are called."""
    return None if key is None else f"{tenant}\n{key}"


class TaskFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which tasks to list, newest first; `before`: ids below it only (the last id of the page before).

    since_s, until_s: accepted from then on, and before then, by the wall clock of that moment.
    tenant: whose keys are meant; without a key it is not asked for.
    """

    states: tuple[State, ...] = ()
    kind: str | None = None
    priority: int | None = None
    tenant: str = "default"
    ordering_key: str | None = None
    idempotency_key: str | None = None
    since_s: float | None = None
    until_s: float | None = None
    limit: int = 50
    before: TaskId | None = None

    @property
    def queue_key(self) -> str | None:
        """The ordering key as stored."""
        return scoped_key(self.tenant, self.ordering_key)

    @property
    def request_key(self) -> str | None:
        """The idempotency key as stored."""
        return scoped_key(self.tenant, self.idempotency_key)


class Depth(msgspec.Struct, frozen=True, kw_only=True):
    """Counters kept with the commits; nothing is counted by scanning."""

    by_state: Mapping[State, int]
    outbox: Mapping[Lane, int]
    bytes_used: int
    written: Mapping[Lane, int] = {}  #: the highest row ever put into each lane of the outbox
    by_class: Mapping[RowClass, Amount] = {}  #: rows and bytes of body that the outbox holds
    level: Level = Level.FREE  #: how short room is
    shortage: str = ""  #: from Level.SLOWED on: which bound is the tight one, and what to do


class Loss(msgspec.Struct, frozen=True, kw_only=True):
    """What was lost of one class for one reason since this store began. rows_told: as last reported."""

    lost_class: str
    reason: str
    rows: int
    size_bytes: int
    rows_told: int = 0


class Waiting(msgspec.Struct, frozen=True, kw_only=True):
    """What is ready: how many by priority, and which has waited longest."""

    by_priority: Mapping[int, int]
    oldest: TaskId | None = None
    oldest_wall_s: float | None = None  #: when that one was accepted


class Store(Protocol):
    """Durable state of one queue. All methods are synchronous; `apply` is one synced commit."""

    @property
    def epoch(self) -> str:
        """Random id of this store: another one after a lost or restored disk."""
        ...

    @property
    def session(self) -> int:
        """How often this store was opened: grows with each process."""
        ...

    def apply(self, operations: Sequence[Operation], *, now: Instant) -> list[Answer]:
        """Commit all operations at once and return their answers in order.

        Raises StorageFailed when the disk refuses: then none of them took effect.
        """
        ...

    def get(self, task_id: TaskId) -> TaskRecord | None:
        """Return one task with its attempts, or None."""
        ...

    def story(self, task_id: TaskId) -> tuple[StoryEvent, ...]:
        """Return what happened to a task, its acceptance first; empty for one that is not known.

        Of a very long story the latest part is kept.
        """
        ...

    def find(self, task_filter: TaskFilter) -> list[TaskRecord]:
        """Return tasks, newest first, without their attempts and decisions."""
        ...

    def outbox(self, lane: Lane, after: int, *, limit: int, limit_bytes: int) -> list[Row]:
        """Return rows of a lane above `after`, in order; at least one when there is one."""
        ...

    def note_sent(self, lane: Lane, upto: int) -> None:
        """Take note that rows of a lane up to there are on their way: what may arrive is not evicted.

        Kept in memory, from any thread.
        """
        ...

    def inbox_mark(self, source: str, epoch: str, lane: Lane) -> int:
        """Return up to where the source's stream is applied; 0 for an unknown epoch."""
        ...

    def recurring(self, *, now: Instant) -> list[RecurringRecord]:
        """Return the recurring tasks, by name."""
        ...

    def meta(self, name: str) -> Any:
        """Return a value kept with PutMeta, None when there is none."""
        ...

    def depth(self) -> Depth:
        """Return the counters."""
        ...

    def waiting(self) -> Waiting:
        """Return what is ready, by priority: read from the index, for people who look."""
        ...

    def losses(self) -> list[Loss]:
        """Return the loss ledger, by class and reason."""
        ...

    def usage(self) -> Usage:
        """Return what is taken of the disk now, for the level that `watermarks` makes of it."""
        ...

    def held_placements(self, limit: int = 5000) -> list[TaskId]:
        """Return the placed tasks that have not ended, oldest first."""
        ...

    @property
    def salvaged(self) -> StoreSalvaged | None:
        """What this process had to save from a damaged file, as far as that has come; None: nothing."""
        ...

    def tidy(self) -> bool:
        """Do what waits for idle moments, by the thread that applies; True when more of it waits."""
        ...

    def close(self) -> None:
        """Close in order."""
        ...
