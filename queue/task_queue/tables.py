"""The inner port: the tables that the queue's rules work on. SQLite and memory provide them."""

from __future__ import annotations

from collections.abc import Collection, Container, Iterator, Sequence
from typing import Protocol

from skerry.ids import TaskId
from skerry.messages import Lane
from task_queue.recurring_tables import RecurringTables
from task_queue.retention import Amount, Amounts
from task_queue.rows import OutboxRow, RememberedRow, TaskRow
from task_queue.store import Loss
from task_queue.story import EventRow
from task_queue.task import Event


class Tables(RecurringTables, Protocol):
    """Reads and writes inside one transaction. Selections are in the order named, at most `limit` rows."""

    def task(self, task_id: TaskId) -> TaskRow | None:
        """Return the row with this id."""
        ...

    def claimed(self, seqs: Sequence[int]) -> list[tuple[TaskRow, bytes]]:
        """Return the rows with these numbers and their bodies, in their order."""
        ...

    def body(self, seq: int) -> bytes:
        """Return a task as it was submitted, JSON; empty when it is lost."""
        ...

    def request(self, request_key: str) -> TaskId | None:
        """Return the task that was accepted under this key, though only that may be left of it."""
        ...

    def insert(self, row: TaskRow, body: bytes) -> bool:
        """Add a row with its body, unless there is one with its id or key. Return whether it was added."""
        ...

    def move(self, row: TaskRow, event: Event, changed: Collection[str]) -> None:
        """Write row, whose state `event` has just set, and the other columns in `changed`.

        Raises InvalidTransition when the stored state is not one that the event may meet.
        """
        ...

    def amend(self, row: TaskRow) -> None:
        """Write the columns that may change without a change of state."""
        ...

    def delete_task(self, row: TaskRow) -> None:
        """Remove a row with its body and its story."""
        ...

    def remember(self, row: RememberedRow) -> None:
        """Keep what is left of a task."""
        ...

    def remembered(self, task_id: TaskId) -> RememberedRow | None:
        """Return what is left of a task."""
        ...

    def forget(self, task_id: TaskId) -> None:
        """Remove what is left of a task."""
        ...

    def forget_before(self, on_s: float, limit: int) -> int:
        """Remove what is left of tasks ended before then, among the first `limit` ids; return how many."""
        ...

    def append_event(self, event: EventRow) -> None:
        """Add an event to a story; its row names it."""
        ...

    def replace_note(self, event: EventRow) -> bool:
        """Write over the event with this id, if it is a note, and return whether it is."""
        ...

    def event(self, number: int) -> EventRow | None:
        """Return one event."""
        ...

    def shorten_story(self, newest: int, keep: int) -> None:
        """Remove what lies before the `keep` newest events of a story."""
        ...

    def first_open(self, queue_key: str) -> TaskRow | None:
        """Return the oldest unended row with this key, by turn."""
        ...

    def ready(self, leases: Container[int]) -> Iterator[int]:
        """Yield the numbers of ready rows that have no lease when they come, by priority, then turn."""
        ...

    def oldest_ready(self, leases: Container[int]) -> Iterator[int]:
        """Yield the same by turn, whatever their priority."""
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
