"""Reads on a connection of their own, from any thread: short, one at a time, never in the writer's way."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from skerry.database import translated
from skerry.errors import StoreDamaged
from skerry.ids import TaskId
from skerry.messages import Lane, Row
from task_queue import listing, sqlite_file
from task_queue.messages import with_head
from task_queue.queries import statements
from task_queue.recurring_row import RecurringRecord
from task_queue.recurring_row import record_of as recurring_record
from task_queue.recurring_tables import recurring_of
from task_queue.rows import TaskRow, record_of, story_of
from task_queue.sqlite_outbox import loss_of, seq_of, span
from task_queue.sqlite_tables import split_row, task_of
from task_queue.store import Loss, StoryEvent, TaskFilter, TaskRecord, Waiting
from task_queue.story import EventRow
from task_queue.task import State
from task_queue.watermarks import Usage

log = logging.getLogger(__name__)


class SqliteReads:
    """What can be asked of the file. leases: the writer's set of claimed rows, read here only."""

    def __init__(
        self,
        path: Path,
        leases: set[int],
        on_damage: Callable[[StoreDamaged], None] = lambda _: None,
        *,
        is_still: bool = False,
    ) -> None:
        """Open the read-only connection.

        on_damage: hears of what cannot be read, besides who asked.  is_still: nobody writes meanwhile.
        """
        self._path = path
        self._leases = leases
        self._on_damage = on_damage
        self._lock = threading.Lock()
        self._sql = statements()
        self._db = sqlite_file.open_reader(path, is_still=is_still)
        self._gauge = sqlite_file.Gauge(self._db, path)

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            with translated(self._path):
                yield
        except StoreDamaged as damage:
            self._on_damage(damage)
            raise

    def _read(self, query: str, /, **values: Any) -> list[Any]:
        with self._lock, self._translated():
            return self._db.execute(self._sql[query], values).fetchall()

    def _seen(self, row: TaskRow) -> TaskRow:
        is_leased = row.state is State.READY and row.seq in self._leases
        return msgspec.structs.replace(row, state=State.LEASED) if is_leased else row

    def get(self, task_id: TaskId) -> TaskRecord | None:
        """See Store."""
        with self._translated():
            found = self._whole(task_id)
            return None if found is None else record_of(*found)

    def story(self, task_id: TaskId) -> tuple[StoryEvent, ...]:
        """See Store."""
        with self._translated():
            found = self._whole(task_id)
            return () if found is None else story_of(found[0], found[2])

    def _whole(self, task_id: TaskId) -> tuple[TaskRow, bytes, list[EventRow]] | None:
        """Read a task, its body and its story in one transaction: they belong to the same moment."""
        whole: tuple[TaskRow, bytes, list[EventRow]] | None = None
        with self._lock, self._translated(), self._db:
            for columns in self._db.execute(self._sql["task_by_id"], (bytes.fromhex(task_id),)).fetchall():
                row = task_of(columns)
                bodies: list[Any] = self._db.execute(self._sql["body"], (row.seq,)).fetchall()
                events: list[Any] = self._db.execute(self._sql["story"], (row.last_event,)).fetchall()
                story = [EventRow(*event) for event in reversed(events)]
                whole = self._seen(row), bodies[0][0] if bodies else b"", story
        return whole

    def find(self, task_filter: TaskFilter) -> list[TaskRecord]:
        """See Store."""
        rows = self._listed(listing.index_for(task_filter), listing.values_of(task_filter, self._leases))
        with self._translated():
            return [record_of(self._seen(row), body, event) for row, body, event in map(split_row, rows)]

    def _listed(self, index: str, values: dict[str, Any]) -> list[Any]:
        """Read a page; without an index that answers it, stretch by stretch, each a read of its own."""
        sql, wanted = listing.statement(index), values["limit"]
        rows: list[Any] = []
        while True:
            floor = None
            if not index:
                floor = next(iter(self._read("stretch", below=values["below"], rows=listing.STRETCH)), None)
            values |= {"floor": floor[0] if floor else listing.LOWEST, "limit": wanted - len(rows)}
            with self._lock, self._translated():
                rows += self._db.execute(sql, values).fetchall()
            if floor is None or len(rows) >= wanted:
                return rows
            values["below"] = floor[0]

    def outbox(self, lane: Lane, after: int, *, limit: int, limit_bytes: int) -> list[Row]:
        """See Store."""
        rows: list[Row] = []
        size = 0
        with self._lock, self._translated():
            values = {**span(lane, above=after), "limit": limit}
            for message_id, kind, key, stored in self._db.execute(self._sql["outbox"], values):
                body = with_head(kind, key, stored)
                size += len(body)
                if rows and size > limit_bytes:
                    break
                rows.append(Row(seq=seq_of(message_id), kind=kind, body=msgspec.Raw(body), key=key))
        return rows

    def inbox_mark(self, source: str, epoch: str, lane: Lane) -> int:
        """See Store."""
        found = self._read("inbox_mark", source=source, epoch=epoch, lane=lane.value)
        return found[0][0] if found else 0

    def recurring(self, on_s: float) -> list[RecurringRecord]:
        """See Store.  on_s: the store's powered-on seconds now."""
        return [recurring_record(recurring_of(columns), on_s) for columns in self._read("all_recurring")]

    def meta(self, name: str) -> Any:
        """See Store."""
        found = self._read("meta", name=name)
        try:
            return msgspec.json.decode(found[0][0]) if found else None
        except msgspec.DecodeError:
            log.warning("the value %r that the queue keeps cannot be read: it is left out", name)
            return None

    def waiting(self) -> Waiting:
        """See Store."""
        by_priority = {priority: count for priority, count in self._read("count_ready")}
        first = [row for each in by_priority for row in self._read("oldest_ready", priority=each)]
        oldest = min(first, default=None)
        return Waiting(
            by_priority=by_priority,
            oldest=None if oldest is None else TaskId(oldest[1].hex()),
            oldest_wall_s=None if oldest is None else oldest[2],
        )

    def losses(self) -> list[Loss]:
        """See Store."""
        return [loss_of(columns) for columns in self._read("losses")]

    def usage(self, free_bytes: int) -> Usage:
        """Return what is taken of the disk."""
        with self._lock, self._translated():
            return self._gauge.usage(free_bytes)

    def held_placements(self, limit: int) -> list[TaskId]:
        """See Store."""
        return [TaskId(task_id.hex()) for (task_id,) in self._read("held_placements", limit=limit)]

    def bytes_in_use(self) -> int:
        """Return the bytes of the file that hold something."""
        with self._lock, self._translated():
            return sqlite_file.bytes_in_use(self._db)

    def close(self) -> None:
        """Close the connection."""
        with self._lock:
            self._db.close()
