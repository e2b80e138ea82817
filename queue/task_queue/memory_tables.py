"""The tables in memory: dictionaries, sorted indexes and an undo list. Knows no rules."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Container, Iterator, Sequence
from heapq import merge
from itertools import takewhile
from operator import itemgetter
from typing import Any

import msgspec

from skerry.errors import InvalidTransition
from skerry.ids import TaskId
from skerry.messages import Lane
from task_queue.limits import PRIORITIES
from task_queue.memory_outbox import MemoryOutbox
from task_queue.recurring_tables import MemoryRecurring
from task_queue.rows import RememberedRow, TaskRow, stored_state
from task_queue.sorted_keys import SortedKeys
from task_queue.story import NOTED, EventRow
from task_queue.task import FINAL, OPEN, TRANSITIONS, Event, State

_WAITING = frozenset({State.DELAYED, State.BLOCKED, State.READY})
_HERE = _WAITING | {State.RUNNING}


def _entries(row: TaskRow) -> Iterator[tuple[str, Any]]:
    """Yield the indexes that hold a row, with its key there: what the partial indexes say in SQL."""
    state, seq = row.state, row.seq
    yield "ids", (row.task_id, seq)
    if state is State.READY:
        yield "ready", (-row.priority, row.turn, seq)
    if state is State.DELAYED:
        yield "due", (row.due_on_s, seq)
    if state is State.RUNNING:
        yield "running", (seq,)
    if row.expires_on_s is not None and state in _HERE:
        yield "expiring", (row.expires_on_s, seq)
    if row.lease_on_s is not None and row.placement is not None and state in _WAITING:
        yield "lapsing", (row.lease_on_s, seq)
    if row.lease_on_s is not None and state is State.HANDED_OVER:
        yield "overdue", (row.lease_on_s, seq)
    if row.placement is not None and state in _HERE:
        yield "placed", (seq,)
    if row.queue_key is not None and state in OPEN:
        yield "key", (row.queue_key, row.turn, seq)
    if row.ended_on_s is not None:
        yield "ended", (row.ended_on_s, seq)


def _set(table: dict[Any, Any], key: Any, value: Any) -> None:
    if value is None:
        table.pop(key, None)
    else:
        table[key] = value


class MemoryTables(MemoryRecurring, MemoryOutbox):
    """Tables that live as long as their owner. `undo` takes back everything since the last `keep`."""

    def __init__(self) -> None:
        """Start empty."""
        super().__init__()
        self.rows: dict[int, TaskRow] = {}
        self.index: dict[str, SortedKeys] = defaultdict(SortedKeys)
        self.bodies: dict[int, bytes] = {}
        self.events: dict[int, EventRow] = {}
        self.left: dict[TaskId, RememberedRow] = {}
        self.marks: dict[tuple[str, str, Lane], int] = {}
        self.values: dict[str, bytes] = {}
        self._ids: dict[TaskId, int] = {}
        self._requests: dict[str, TaskId] = {}
        self._undo: list[Callable[[], None]] = []

    @property
    def is_dirty(self) -> bool:
        """Something was written since the last keep."""
        return bool(self._undo)

    def keep(self) -> None:
        """Make everything so far final."""
        self._undo.clear()

    def undo(self) -> None:
        """Take back what was written since the last keep, the latest first."""
        while self._undo:
            self._undo.pop()()
        self._undo.clear()

    def _replace(self, old: TaskRow | None, new: TaskRow | None) -> None:
        """Put a row in the place of another, in every index."""
        if old is not None:
            self._leave(old)
        if new is not None:
            self._enter(new)

    def _leave(self, row: TaskRow) -> None:
        for name, key in _entries(row):
            self.index[name].remove(key)
        del self.rows[row.seq], self._ids[row.task_id]
        if row.request_key is not None:
            del self._requests[row.request_key]

    def _enter(self, row: TaskRow) -> None:
        for name, key in _entries(row):
            self.index[name].add(key)
        self.rows[row.seq] = row
        self._ids[row.task_id] = row.seq
        if row.request_key is not None:
            self._requests[row.request_key] = row.task_id

    def _write(self, old: TaskRow | None, new: TaskRow | None) -> None:
        self._replace(old, new)
        self._undo.append(lambda: self._replace(new, old))

    def task(self, task_id: TaskId) -> TaskRow | None:
        """See Tables."""
        seq = self._ids.get(task_id)
        return None if seq is None else self.rows[seq]

    def claimed(self, seqs: Sequence[int]) -> list[tuple[TaskRow, bytes]]:
        """See Tables."""
        return [(self.rows[seq], self.body(seq)) for seq in seqs]

    def body(self, seq: int) -> bytes:
        """See Tables."""
        return self.bodies.get(seq, b"")

    def request(self, request_key: str) -> TaskId | None:
        """See Tables."""
        return self._requests.get(request_key)

    def insert(self, row: TaskRow, body: bytes) -> bool:
        """See Tables."""
        if row.task_id in self._ids or row.request_key in self._requests:
            return False
        self._write(None, row)
        self._put(self.bodies, row.seq, body)
        self._count_bytes(len(body))
        return True

    def _count_bytes(self, change: int) -> None:
        self.bytes_used += change
        self._undo.append(lambda: setattr(self, "bytes_used", self.bytes_used - change))

    def _put(self, table: dict[Any, Any], key: Any, value: Any) -> None:
        """Set a value, None removes it; in a way that can be taken back."""
        before = table.get(key)
        _set(table, key, value)
        self._undo.append(lambda: _set(table, key, before))

    def move(self, row: TaskRow, event: Event, changed: Collection[str]) -> None:
        """See Tables."""
        stored = self.rows[row.seq]
        states = {stored_state(state) for state, may in TRANSITIONS if may is event}
        if stored.state not in states:
            raise InvalidTransition(stored.state, event)
        self._write(stored, row)

    def amend(self, row: TaskRow) -> None:
        """See Tables."""
        self._write(self.rows[row.seq], msgspec.structs.replace(row, state=stored_state(row.state)))

    def delete_task(self, row: TaskRow) -> None:
        """See Tables."""
        assert row.state in FINAL, f"{row.task_id} has not ended"
        self._count_bytes(-row.size_bytes)
        self._put(self.bodies, row.seq, None)
        self.shorten_story(row.last_event or 0, 0)
        self._write(self.rows[row.seq], None)

    def remember(self, row: RememberedRow) -> None:
        """See Tables."""
        self._put(self.left, row.task_id, row)
        if row.request_key is not None:
            self._put(self._requests, row.request_key, row.task_id)

    def remembered(self, task_id: TaskId) -> RememberedRow | None:
        """See Tables."""
        return self.left.get(task_id)

    def forget(self, task_id: TaskId) -> None:
        """See Tables."""
        row = self.left[task_id]
        self._put(self.left, task_id, None)
        if row.request_key is not None:
            self._put(self._requests, row.request_key, None)

    def forget_before(self, on_s: float, limit: int) -> int:
        """See Tables."""
        old = [task_id for task_id in sorted(self.left)[:limit] if self.left[task_id].ended_on_s < on_s]
        for task_id in old:
            self.forget(task_id)
        return len(old)

    def append_event(self, event: EventRow) -> None:
        """See Tables."""
        self._put(self.events, event.id, event)

    def replace_note(self, event: EventRow) -> bool:
        """See Tables."""
        stored = self.events[event.id]
        if stored.what != NOTED:
            return False
        self._put(self.events, event.id, msgspec.structs.replace(event, prev=stored.prev))
        return True

    def event(self, number: int) -> EventRow | None:
        """See Tables."""
        return self.events.get(number)

    def shorten_story(self, newest: int, keep: int) -> None:
        """See Tables."""
        for event in self.story(newest)[keep:]:
            self._put(self.events, event.id, None)

    def story(self, newest: int | None) -> list[EventRow]:
        """Return the events of a story, the newest first."""
        story: list[EventRow] = []
        while newest is not None and newest in self.events:
            story.append(self.events[newest])
            newest = story[-1].prev
        return story

    def first_open(self, queue_key: str) -> TaskRow | None:
        """See Tables."""
        first = next(self.index["key"].above((queue_key,)), None)
        return self.rows[first[2]] if first is not None and first[0] == queue_key else None

    def ready(self, leases: Container[int]) -> Iterator[int]:
        """See Tables."""
        return (seq for _, _, seq in self.index["ready"] if seq not in leases)

    def oldest_ready(self, leases: Container[int]) -> Iterator[int]:
        """See Tables."""
        by_turn = merge(*map(self._ready_of, PRIORITIES), key=itemgetter(1))
        yield from (seq for _, _, seq in by_turn if seq not in leases)

    def _ready_of(self, priority: int) -> Iterator[Any]:
        return takewhile(lambda key: key[0] == -priority, self.index["ready"].above((-priority,)))

    def _upto(self, name: str, on_s: float, limit: int) -> list[TaskRow]:
        found: list[TaskRow] = []
        for at, seq in self.index[name]:
            if at > on_s or len(found) >= limit:
                break
            found.append(self.rows[seq])
        return found

    def due(self, on_s: float, limit: int) -> list[TaskRow]:
        """See Tables."""
        return self._upto("due", on_s, limit)

    def expiring(self, on_s: float, limit: int) -> list[TaskRow]:
        """See Tables."""
        return self._upto("expiring", on_s, limit)

    def lapsed(self, on_s: float, limit: int) -> list[TaskRow]:
        """See Tables."""
        return self._upto("lapsing", on_s, limit)

    def overdue(self, on_s: float, limit: int) -> list[TaskRow]:
        """See Tables."""
        return self._upto("overdue", on_s, limit)

    def ended_before(self, on_s: float, limit: int) -> list[TaskRow]:
        """See Tables."""
        return [row for row in self._upto("ended", on_s, limit) if row.ended_on_s != on_s]

    def running(self) -> list[TaskRow]:
        """See Tables."""
        return [self.rows[seq] for (seq,) in self.index["running"]]

    def next_times(self) -> tuple[float | None, float | None, float | None, float | None]:
        """See Tables."""
        due, expiry, lapse, overdue = (
            next(iter(self.index[name]), (None,))[0] for name in ("due", "expiring", "lapsing", "overdue")
        )
        return due, expiry, lapse, overdue

    def mark_inbox(self, source: str, epoch: str, lane: Lane, upto: int) -> None:
        """See Tables."""
        before = self.marks.get((source, epoch, lane), 0)
        if upto <= before:
            return
        self.marks[source, epoch, lane] = upto
        self._undo.append(lambda: self.marks.__setitem__((source, epoch, lane), before))

    def put_meta(self, name: str, value: bytes) -> None:
        """See Tables."""
        before = self.values.get(name, b"null")
        self.values[name] = value
        self._undo.append(lambda: self.values.__setitem__(name, before))
