"""The inner port: the tables that the queue's rules work on. SQLite and memory provide them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from skerry.fence import Fence
from skerry.ids import TaskId
from skerry.messages import Lane
from task_queue.recurring_tables import RecurringTables
from task_queue.retention import Amount, Amounts
from task_queue.rows import OutboxRow, TaskRow
from task_queue.store import Attempt, Loss
from task_queue.task import Event


class Tables(RecurringTables, Protocol):
    """Reads and writes inside one transaction. Selections are in the order named, at most `limit` rows."""

    def task(self, task_id: TaskId) -> TaskRow | None:
        """Return the row with this id."""
        ...

    def tasks(self, seqs: Sequence[int]) -> list[TaskRow]:
        """Return the rows with these numbers, in their order."""
        ...

    def request(self, request_key: str) -> TaskId | None:
        """Return the task that was accepted under this key."""
        ...

    def insert(self, row: TaskRow) -> None:
        """Add a row."""
        ...

    def move(self, row: TaskRow, event: Event, changed: frozenset[str]) -> None:
        """Write row, whose state `event` has just set, and the other columns in `changed`.

        Raises InvalidTransition when the stored state is not one that the event may meet.
        """
        ...

    def amend(self, row: TaskRow) -> None:
        """Write the columns that may change without a change of state."""
        ...

    def delete_task(self, row: TaskRow) -> None:
        """Remove a row with its attempts."""
        ...

    def first_open(self, queue_key: str) -> TaskRow | None:
        """Return the oldest unended row with this key, by turn."""
        ...

    def ready(self, limit: int) -> list[int]:
        """Return the numbers of ready rows, by priority, then turn."""
        ...

    def due(self, on_s: float, limit: int) -> list[TaskRow]:
        """Return delayed rows that are due."""
        ...

    def expiring(self, on_s: float, limit: int) -> list[TaskRow]:
        """Return unended rows, here, whose time has run out."""
        ...

    def lapsed(self, on_s: float, limit: int) -> list[TaskRow]:
        """Return placed rows, not started, whose own lease has run out."""
        ...

    def overdue(self, on_s: float, limit: int) -> list[TaskRow]:
        """Return handed-over rows whose time, or the wait for word after it, has run out."""
        ...

    def ended_before(self, on_s: float, limit: int) -> list[TaskRow]:
        """Return rows that ended before then, the oldest end first."""
        ...

    def running(self) -> list[TaskRow]:
        """Return the running rows."""
        ...

    def next_times(self) -> tuple[float | None, float | None, float | None, float | None]:
        """Return the next due time, expiry, lapse of a lease, and end of a handed-over row's time."""
        ...

    def add_attempt(self, seq: int, attempt: Attempt) -> None:
        """Add an attempt, numbered by its fence."""
        ...

    def end_attempt(self, seq: int, fence: Fence, ended: str, error: str, runtime_s: float) -> None:
        """Write how an attempt ended."""
        ...

    def append_outbox(self, row: OutboxRow) -> None:
        """Add a message."""
        ...

    def newest_coalesced(self, lane: Lane, coalesce: str) -> int:
        """Return the number of the lane's latest row with this coalescing key, 0 without one."""
        ...

    def delete_coalesced(self, lane: Lane, coalesce: str) -> Amounts:
        """Remove the lane's rows with this coalescing key and return what there was."""
        ...

    def trim_outbox(self, lane: Lane, upto: int, limit: int) -> Amounts:
        """Remove the lane's first rows up to a sequence number and return what there was."""
        ...

    def evict_outbox(self, lane: Lane, above: int, limit: int) -> Amounts:
        """Remove the lane's oldest telemetry above a sequence number and return what there was."""
        ...

    def add_loss(self, lost_class: str, reason: str, amount: Amount) -> None:
        """Add to what was lost of a class for a reason."""
        ...

    def losses(self) -> list[Loss]:
        """Return what was lost, by class and reason."""
        ...

    def losses_told(self, loss: Loss) -> None:
        """Take note that so many rows are reported."""
        ...

    def mark_inbox(self, source: str, epoch: str, lane: Lane, upto: int) -> None:
        """Raise the mark of a stream; a lower one changes nothing."""
        ...

    def put_meta(self, name: str, value: bytes) -> None:
        """Keep a named JSON value (already encoded)."""
        ...
