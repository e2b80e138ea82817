"""What the operations of one commit share, and the moves every rule is made of.

Owns the counters' bookkeeping and the memory leases; knows nothing of SQL.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import msgspec

from skerry.fence import Fence
from skerry.ids import TaskId
from skerry.messages import Lane, Outcome, PlacementRefused, TaskEnded, UpRow, row_of
from skerry.task import TaskSpec
from task_queue.limits import Limits
from task_queue.messages import without_head
from task_queue.operations import Operation, Refused
from task_queue.retention import Amount, class_of
from task_queue.rows import Book, OutboxRow, RememberedRow, TaskRow, fence_of, spec_of
from task_queue.story import (
    NOTED,
    STORY_LIMIT,
    STORY_SLICE,
    Detail,
    EventRow,
    ending,
    packed_detail,
    was_dropped,
)
from task_queue.tables import Tables
from task_queue.task import FINAL, OPEN, Event, State, check_transition
from task_queue.watermarks import Room, Usage


@dataclass(kw_only=True)
class Transaction:
    """One commit in the making. leases: the claimed rows; measure: asked once, when a rule wants to know."""

    tables: Tables
    book: Book
    leases: set[int]
    on_s: float  #: the store's powered-on seconds now
    wall_s: float
    limits: Limits
    reports: bool
    measure: Callable[[], Usage]
    epoch: str = ""  #: of the store
    was_short: bool = False  #: room was, when it was last measured
    sent: Mapping[Lane, int] = field(default_factory=dict)  #: rows up to there may be on their way
    losses: dict[tuple[str, str], Amount] = field(
        default_factory=dict
    )  #: in this commit, by class and reason
    #: Have at hand what an operation is about, while rows of a damaged file are brought over; StorageFailed
    #: when that cannot be found yet.
    have: Callable[[Operation], None] = lambda _: None
    #: The same for all tasks of an ordering key; False when it cannot be told yet which those are.
    has_whole_key: Callable[[str], bool] = lambda _: True
    evicted: int = 0  #: rows, in this commit
    is_swept: bool = False  #: this commit has looked for rows to evict and found no more

    @cached_property
    def room(self) -> Room:
        """How much room there is, as this commit changes it."""
        return Room(self.measure(), self.limits)

    def lose(self, lost_class: str, reason: str, amount: Amount) -> None:
        """Count a loss; it is written down with this commit."""
        before = self.losses.get((lost_class, reason), Amount())
        self.losses[lost_class, reason] = before.plus(amount)

    def find(self, task_id: TaskId) -> TaskRow | None:
        """Return the row, with the lease that memory holds on it."""
        row = self.tables.task(task_id)
        return None if row is None else self.seen(row)

    def seen(self, row: TaskRow) -> TaskRow:
        """Return the row in the state it is really in."""
        return msgspec.structs.replace(row, state=State.LEASED) if row.seq in self.leases else row

    def move(
        self, row: TaskRow, event: Event, after: State, *, detail: Detail | None = None, **changes: Any
    ) -> TaskRow:
        """Write one transition, and detail into the story.

        Raises InvalidTransition for one that the table does not hold.
        """
        check_transition(row.state, event, after)
        moved = self._told(row, event, detail, state=after, **changes)
        self.tables.move(moved, event, tuple(changes))
        self.leases.discard(row.seq)
        self.book.move(row.state, after)
        return moved

    def _told(self, row: TaskRow, what: str, detail: Detail | None, **changes: Any) -> TaskRow:
        """Return the changed row, with an event added to its story."""
        number, events = self.book.next_event(), row.events + 1
        self.tables.append_event(
            EventRow(number, row.last_event, self.wall_s, self.on_s, what, packed_detail(detail))
        )
        if events > STORY_LIMIT and events % STORY_SLICE == 0:
            self.tables.shorten_story(number, STORY_LIMIT)
        return msgspec.structs.replace(row, last_event=number, events=events, **changes)

    def forget(self, row: TaskRow) -> None:
        """Delete an ended task's record; its id and key stay, to recognise a repetition."""
        assert row.ended_on_s is not None  # a task that has not ended has no end to remember
        left = RememberedRow(row.task_id, row.state, self.may_run_again(row), row.ended_on_s, row.request_key)
        self.tables.delete_task(row)
        self.book.count(row.state, -1)
        self.tables.remember(left)
        self.book.remembered += 1

    def may_run_again(self, row: TaskRow) -> bool:
        """Decide whether an ended task may be run under a new placement."""
        if row.is_once and row.attempt > 0:
            return False
        is_cancelled = row.state is State.CANCELLED
        return row.state is State.DEAD or (is_cancelled and was_dropped(self.newest_event(row)))

    def amend(self, row: TaskRow, **changes: Any) -> TaskRow:
        """Write columns that have nothing to do with the state."""
        amended = msgspec.structs.replace(row, **changes)
        self.tables.amend(amended)
        return amended

    def note(self, row: TaskRow, detail: Detail, **changes: Any) -> TaskRow:
        """Amend a row and say why in its story; of notes in a row the latest is kept."""
        if row.last_event is not None:
            note = EventRow(row.last_event, None, self.wall_s, self.on_s, NOTED, packed_detail(detail))
            if self.tables.replace_note(note):
                return self.amend(row, **changes)
        return self.amend(self._told(row, NOTED, detail, **changes))

    def newest_event(self, row: TaskRow) -> EventRow | None:
        """Return the newest event of a row's story."""
        return None if row.last_event is None else self.tables.event(row.last_event)

    def spec(self, row: TaskRow) -> TaskSpec:
        """Return the task as it was submitted."""
        return spec_of(row, self.tables.body(row.seq))

    def end(
        self,
        row: TaskRow,
        event: Event,
        after: State,
        outcome: Outcome,
        *,
        report: bool = True,
        detail: Detail | None = None,
        **changes: Any,
    ) -> TaskRow:
        """End a task: its row, its story, its report and its successor, all in this commit."""
        ended = self.move(
            row,
            event,
            after,
            detail=detail or ending(outcome, self._start_of(row)),
            ended_on_s=self.on_s,
            ended_wall_s=self.wall_s,
            **changes,
        )
        if report:
            self.report_end(ended, outcome)
        if after in _LOST and event is not Event.RETURNED:  # there it is counted where it ended
            self.lose("task", _LOST[after], Amount(1, row.size_bytes))
        self.unblock(ended)
        return ended

    def _start_of(self, row: TaskRow) -> EventRow | None:
        """Return the start of a running row's attempt, where nothing was written of it since."""
        return self.newest_event(row) if row.state is State.RUNNING else None

    def report_end(self, row: TaskRow, outcome: Outcome) -> None:
        """Queue the report of an end: under its placement (live), or of a node's own task (backlog)."""
        placement = fence_of(row.placement)
        if placement is None and not self.reports:
            return
        self.send_end(Lane.BACKLOG if placement is None else Lane.LIVE, row, outcome)

    def send_end(self, lane: Lane, row: TaskRow, outcome: Outcome) -> None:
        """Queue the message that says how a row ended."""
        placement = fence_of(row.placement)
        base = placement or fence_of(row.fence) or Fence()
        message = TaskEnded(
            task_id=row.task_id,
            task_kind=row.kind,
            fence=base.with_attempt(row.attempt),
            outcome=outcome,
            is_placed=placement is not None,
            attempts=row.attempt,
        )
        self.send(lane, message, key=row.task_id)

    def send(self, lane: Lane, message: UpRow, *, key: str, coalesce: str = "") -> int:
        """Queue a message of the stream and return its sequence number."""
        kind, body = row_of(message)
        return self.append(lane, kind, body, key=key, coalesce=coalesce)

    def append(self, lane: Lane, kind: str, body: bytes, *, key: str = "", coalesce: str = "") -> int:
        """Queue a row; a coalescing key takes the place of the older rows with that key."""
        if coalesce:
            self.retract(lane, coalesce)
        book, row_class = self.book, class_of(kind)
        body = without_head(kind, key, body)
        seq = book.outbox_seq[lane] = book.outbox_seq.get(lane, 0) + 1
        book.outbox[lane] = book.outbox.get(lane, 0) + 1
        rows, size_bytes = book.by_class.get(row_class, _NOTHING)
        book.by_class[row_class] = Amount(rows + 1, size_bytes + len(body))
        self.tables.append_outbox(OutboxRow(lane, seq, kind, key, coalesce, body, row_class))
        return seq

    def retract(self, lane: Lane, coalesce: str) -> None:
        """Take back the rows with this coalescing key that are not acknowledged."""
        self.book.forget_rows(lane, self.tables.delete_coalesced(lane, coalesce))

    def drop(self, row: TaskRow, *, reason: str) -> TaskRow:
        """Let go of a placed task; one that was handed over from here waits for its end elsewhere."""
        is_gone = not row.is_offered
        dropped = self.move(
            row,
            Event.DROPPED,
            State.CANCELLED if is_gone else State.HANDED_OVER,
            detail=Detail(error=reason),
            placement=row.placement if is_gone else None,
            lease_on_s=None if is_gone else row.expires_on_s,
            ended_on_s=self.on_s if is_gone else None,
            ended_wall_s=self.wall_s if is_gone else None,
            waiting_for=reason,
        )
        self.unblock(dropped)
        return dropped

    def refuse_placement(self, row: TaskRow, reason: str) -> TaskRow:
        """Give a placed task back to the coordinator."""
        fence = fence_of(row.placement)
        assert fence is not None  # callers have checked that it is placed
        self.send(
            Lane.LIVE, PlacementRefused(task_id=row.task_id, fence=fence, reason=reason), key=row.task_id
        )
        return self.drop(row, reason=reason)

    def unblock(self, row: TaskRow) -> None:
        """Make the next task of the ordering key ready, when the row has ended and the next one waits."""
        if row.queue_key is None or row.state in OPEN or not self.has_whole_key(row.queue_key):
            return
        following = self.tables.first_open(row.queue_key)
        if following is not None and following.state is State.BLOCKED:
            self.move(following, Event.UNBLOCKED, State.READY)

    def state_in_turn(self, queue_key: str | None, seq: int) -> State:
        """Return ready, or blocked when an older task with the ordering key has not ended."""
        if queue_key is None:
            return State.READY
        if not self.has_whole_key(queue_key):
            return State.BLOCKED  # until all of them are here
        first = self.tables.first_open(queue_key)
        return State.READY if first is None or first.seq == seq else State.BLOCKED

    def refuse_unless_leased(self, row: TaskRow | None, task_id: TaskId) -> Refused | None:
        """Return why an operation on a claimed task cannot be done, None when the claim holds."""
        if row is None:
            return not_found(task_id)
        if row.state in FINAL:
            return ended(row)
        if row.state is not State.LEASED:
            return Refused(
                reason="lease_lost", message=f"the task is {row.state} and not claimed", task_id=task_id
            )
        return None


_NOTHING = Amount()
#: How a task ends that counts as a loss, and under which reason.
_LOST = {State.DEAD: "dead_lettered", State.EXPIRED: "expired"}


def not_found(task_id: TaskId) -> Refused:
    """Return the refusal for an id that this queue does not hold."""
    return Refused(reason="not_found", message=f"there is no task {task_id} in this queue", task_id=task_id)


def ended(row: TaskRow) -> Refused:
    """Return the refusal for a task that has ended."""
    return Refused(
        reason="ended", message=f"task {row.task_id} has ended already: {row.state}", task_id=row.task_id
    )


def not_allowed(row: TaskRow, message: str) -> Refused:
    """Return the refusal for an operation that this task's custody rules out."""
    return Refused(reason="not_allowed", message=f"task {row.task_id}: {message}", task_id=row.task_id)


def fenced(row: TaskRow, fence: Fence) -> Refused:
    """Return the refusal for a fence that is not the current one."""
    current = row.fence if row.state is State.RUNNING else row.known
    return Refused(
        reason="fenced",
        message=f"fence {fence} is not current for task {row.task_id}: {current or 'none'} is",
        task_id=row.task_id,
    )
