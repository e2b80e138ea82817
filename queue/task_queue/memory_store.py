"""The store's twin in memory: same rules, same answers, no disk. For tests and for simulated fleets."""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any

import msgspec

from skerry.clock import Instant
from skerry.errors import StorageFailed
from skerry.ids import TaskId
from skerry.messages import Lane, Row, StoreSalvaged
from task_queue.limits import CHECKPOINT_S, Limits
from task_queue.memory_tables import MemoryTables
from task_queue.messages import with_head
from task_queue.operations import Answer, Operation
from task_queue.recurring_row import RecurringRecord
from task_queue.recurring_row import record_of as recurring_record
from task_queue.rows import Book, TaskRow, depth_of, record_of, story_of, with_room
from task_queue.rules import is_control, perform, settle_interrupted
from task_queue.store import Depth, Loss, StoryEvent, TaskFilter, TaskRecord, Waiting
from task_queue.story import EventRow
from task_queue.task import State
from task_queue.transaction import Transaction
from task_queue.watermarks import Level, Usage, level, why_only_control


class MemoryStore:
    """A Store without a disk. It survives `reopen`, which is what a restart of its process does to a file."""

    def __init__(
        self,
        *,
        now: Instant,
        wall_s: Callable[[], float],
        reports: bool = True,
        limits: Limits | None = None,
        epoch: str | None = None,
    ) -> None:
        """Start empty.  epoch: given where runs must repeat; drawn at random otherwise."""
        self._wall_s = wall_s
        self._reports = reports
        self._limits = limits or Limits()
        self._tables = MemoryTables()
        self._book = Book()
        self._saved_book = msgspec.json.encode(self._book)  #: what a file would hold of it
        self._leases: set[int] = set()
        self._sent: dict[Lane, int] = {}
        self._epoch = epoch or secrets.token_hex(8)
        self._session = 0
        self.reopen(now)

    def reopen(self, now: Instant) -> None:
        """Begin another session, as after a kill: leases are void, interrupted attempts are settled."""
        self._leases.clear()
        self._session += 1
        self._book = msgspec.json.decode(self._saved_book, type=Book)
        self._commit(settle_interrupted, now, is_opening=True)

    @property
    def epoch(self) -> str:
        """See Store."""
        return self._epoch

    @property
    def session(self) -> int:
        """See Store."""
        return self._session

    def apply(self, operations: Sequence[Operation], *, now: Instant) -> list[Answer]:
        """See Store."""
        answers: list[Answer] = []

        def work(tx: Transaction) -> None:
            answers.extend(perform(tx, operations))
            why = (
                ""
                if is_control(operations)
                else why_only_control(self.usage(), self._limits, self._limits.accepted_bytes)
            )
            if why and self._tables.is_dirty:
                raise StorageFailed(why)

        self._commit(work, now)
        return answers

    def _commit(self, work: Callable[[Transaction], None], now: Instant, *, is_opening: bool = False) -> None:
        book, leases = msgspec.json.encode(self._book), set(self._leases)
        try:
            on_s = self._book.powered_on_s(now)
            work(self._transaction(on_s))
        except BaseException:
            self._tables.undo()
            self._book = msgspec.json.decode(book, type=Book)
            self._leases.clear()
            self._leases.update(leases)
            raise
        if self._tables.is_dirty or is_opening or on_s - self._book.powered_s >= CHECKPOINT_S:
            self._book.checkpoint(on_s, now)
            self._saved_book = msgspec.json.encode(self._book)
        self._tables.keep()

    def _transaction(self, on_s: float) -> Transaction:
        return Transaction(
            tables=self._tables,
            book=self._book,
            leases=self._leases,
            on_s=on_s,
            wall_s=self._wall_s(),
            limits=self._limits,
            reports=self._reports,
            epoch=self._epoch,
            measure=self.usage,
            sent=self._sent,
            was_short=level(self.usage(), self._limits) >= Level.SLOWED,
        )

    def _seen(self, row: TaskRow) -> TaskRow:
        return msgspec.structs.replace(row, state=State.LEASED) if row.seq in self._leases else row

    def get(self, task_id: TaskId) -> TaskRecord | None:
        """See Store."""
        row = self._tables.task(task_id)
        return None if row is None else self._record(row, self._tables.story(row.last_event)[::-1])

    def _record(self, row: TaskRow, story: Sequence[EventRow]) -> TaskRecord:
        return record_of(self._seen(row), self._tables.body(row.seq), story)

    def story(self, task_id: TaskId) -> tuple[StoryEvent, ...]:
        """See Store."""
        row = self._tables.task(task_id)
        return () if row is None else story_of(row, self._tables.story(row.last_event)[::-1])

    def find(self, task_filter: TaskFilter) -> list[TaskRecord]:
        """See Store."""
        newest_first = self._tables.index["ids"].below((task_filter.before or "g",))  # above every hex digit
        rows = (self._seen(self._tables.rows[seq]) for _, seq in newest_first)
        wanted = (row for row in rows if _matches(row, task_filter))
        return [
            self._record(row, self._tables.story(row.last_event)[1::-1])
            for row in islice(wanted, task_filter.limit)
        ]

    def outbox(self, lane: Lane, after: int, *, limit: int, limit_bytes: int) -> list[Row]:
        """See Store."""
        after = max(after, self._book.trimmed.get(lane, 0))
        rows: list[Row] = []
        size = 0
        for seq in islice(self._tables.lane_seqs[lane].above(after + 1), limit):
            row = self._tables.lanes[lane][seq]
            body = with_head(row.kind, row.key, row.body)
            size += len(body)
            if rows and size > limit_bytes:
                break
            rows.append(Row(seq=seq, kind=row.kind, body=msgspec.Raw(body), key=row.key))
        return rows

    def note_sent(self, lane: Lane, upto: int) -> None:
        """See Store."""
        self._sent[lane] = max(upto, self._sent.get(lane, 0))

    def inbox_mark(self, source: str, epoch: str, lane: Lane) -> int:
        """See Store."""
        return self._tables.marks.get((source, epoch, lane), 0)

    def recurring(self, *, now: Instant) -> list[RecurringRecord]:
        """See Store."""
        on_s = msgspec.json.decode(self._saved_book, type=Book).powered_on_s(now)
        return [recurring_record(row, on_s) for row in self._tables.all_recurring()]

    def meta(self, name: str) -> Any:
        """See Store."""
        return msgspec.json.decode(self._tables.values.get(name, b"null"))

    def depth(self) -> Depth:
        """See Store."""
        depth = depth_of(self._book, len(self._leases), self._tables.bytes_used)
        return with_room(depth, self.usage(), self._limits)

    def waiting(self) -> Waiting:
        """See Store."""
        ready = [self._tables.rows[key[-1]] for key in self._tables.index["ready"]]
        oldest = min(ready, key=lambda row: row.turn, default=None)
        return Waiting(
            by_priority=Counter(row.priority for row in ready),
            oldest=None if oldest is None else oldest.task_id,
            oldest_wall_s=None if oldest is None else oldest.accepted_wall_s,
        )

    def losses(self) -> list[Loss]:
        """See Store."""
        return self._tables.losses()

    def usage(self) -> Usage:
        """See Store. Memory has no file system whose room could run out, and no log."""
        used = self._tables.bytes_used
        return Usage(used_bytes=used, file_bytes=used, free_bytes=1 << 60)

    def held_placements(self, limit: int = 5000) -> list[TaskId]:
        """See Store."""
        return [self._tables.rows[seq].task_id for (seq,) in islice(self._tables.index["placed"], limit)]

    @property
    def salvaged(self) -> StoreSalvaged | None:
        """See Store. Memory has no file."""
        return None

    def tidy(self) -> bool:
        """See Store. Memory has nothing to give back."""
        return False

    def close(self) -> None:
        """See Store. Nothing is kept open."""


def _matches(row: TaskRow, task_filter: TaskFilter) -> bool:
    wanted = task_filter
    in_states = not wanted.states or row.state in wanted.states
    is_since = wanted.since_s is None or row.accepted_wall_s >= wanted.since_s
    is_until = wanted.until_s is None or row.accepted_wall_s < wanted.until_s
    return (
        (in_states and is_since and is_until)
        and wanted.kind in (None, row.kind)
        and wanted.priority in (None, row.priority)
        and wanted.queue_key in (None, row.queue_key)
        and wanted.request_key in (None, row.request_key)
    )
