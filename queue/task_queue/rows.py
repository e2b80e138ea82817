"""What a store keeps of a task, and the book of counters that each commit writes. Plain values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, lru_cache
from operator import attrgetter
from typing import Any

import msgspec

from skerry.clock import Instant
from skerry.decoding import MALFORMED
from skerry.errors import SpecError, StoreDamaged
from skerry.fence import Fence, parse_fence
from skerry.ids import TaskId
from skerry.messages import Lane
from skerry.task import CommandSpec, TaskSpec
from task_queue.limits import Limits
from task_queue.retention import Amount, Amounts, RowClass
from task_queue.seals import seal, seal_packed, unseal, unseal_packed
from task_queue.store import Depth, StoryEvent, TaskRecord
from task_queue.story import ACCEPTED, EventRow, attempts_of, events_of, latest_decision
from task_queue.task import FINAL, State
from task_queue.watermarks import Level, Usage, level, why_full


class TaskRow(msgspec.Struct, frozen=True):
    """One task as stored: a column a field. Times ending in `_on_s` are powered-on seconds of the store."""

    seq: int
    task_id: TaskId
    state: State
    priority: int
    turn: int  #: order of arrival; a replayed task gets a new one
    kind: str
    is_once: bool  #: its effect is at_most_once
    retries: int
    size_bytes: int  #: of its body
    accepted_wall_s: float
    queue_key: str | None = None  #: tenant and ordering key
    request_key: str | None = None  #: tenant and idempotency key
    attempt: int = 0  #: attempts ever started
    tries: int = 0  #: those that count against `retries`
    placement: str | None = None
    known: str | None = None  #: the highest placement ever heard of
    is_offered: bool = False  #: it was handed over from here
    home_node: str = ""
    placed_on: str = ""
    fence: str | None = None  #: of the running attempt, or under which it ended
    due_on_s: float | None = None
    expires_on_s: float | None = None
    deadline_on_s: float | None = None
    lease_on_s: float | None = None  #: of a placement; of a handed-over row: when it is looked at next
    ended_on_s: float | None = None
    ended_wall_s: float | None = None
    waiting_for: str = ""
    last_event: int | None = None  #: the newest of its story
    events: int = 0  #: how many its story has had


class RememberedRow(msgspec.Struct, frozen=True):
    """What is left of an ended task whose record was forgotten."""

    task_id: TaskId
    state: State
    may_repeat: bool  #: a new placement may run it again
    ended_on_s: float
    request_key: str | None = None


class OutboxRow(msgspec.Struct, frozen=True):
    """One message that waits for the other side's acknowledgement."""

    lane: Lane
    seq: int
    kind: str
    key: str
    coalesce: str
    body: bytes
    row_class: RowClass = RowClass.TASK


class Book(msgspec.Struct):
    """What changes with almost every commit, in one small row: counters, high-water marks, the clock."""

    seq: int = 0
    event: int = 0
    claims: int = 0  #: tasks ever claimed; a restart may forget the latest
    remembered: int = 0  #: ended tasks of which only that is left
    commits: int = 0
    powered_s: float = 0.0  #: powered-on seconds at the last checkpoint of the clock …
    boot_id: str = ""  #: … in this boot …
    uptime_s: float = 0.0  #: … at this reading
    renewed_on_s: float = 0.0  #: until then every placement is good
    by_state: dict[State, int] = {}
    outbox: dict[Lane, int] = {}  #: rows waiting, by lane
    outbox_seq: dict[Lane, int] = {}  #: the last sequence number given out
    trimmed: dict[Lane, int] = {}  #: acknowledged up to here, though not all may be deleted yet
    wall_seen_s: float = 0.0  #: the wall clock when recurring tasks were last looked at: a step back shows
    by_class: dict[RowClass, Amount] = {}  #: what the outbox holds
    telemetry_seen: int = 0  #: rows of telemetry offered while room was short: one of so many is kept
    has_untold_losses: bool = False
    losses_told_on_s: float | None = None
    salvage: dict[str, Any] | None = None  #: how far a salvage has come, as meta has it: the page may be lost

    def powered_on_s(self, now: Instant) -> float:
        """Return the store's powered-on seconds; in another boot they go on from the last checkpoint."""
        if now.boot_id != self.boot_id:
            self.boot_id, self.uptime_s = now.boot_id, now.uptime_s
        return self.powered_s + max(0.0, now.uptime_s - self.uptime_s)

    def checkpoint(self, powered_s: float, now: Instant) -> None:
        """Move the clock's base up to now."""
        self.powered_s = powered_s
        self.boot_id, self.uptime_s = now.boot_id, max(now.uptime_s, self.uptime_s)

    def next_event(self) -> int:
        """Return a number for an event, never given out before."""
        self.event += 1
        return self.event

    def next_seq(self) -> int:
        """Return a number never given out before."""
        self.seq += 1
        return self.seq

    def held(self, row_class: RowClass) -> Amount:
        """Return what the outbox holds of a class."""
        return self.by_class.get(row_class, Amount())

    def forget_rows(self, lane: Lane, gone: Amounts) -> None:
        """Take note of rows that left a lane of the outbox."""
        for row_class, amount in gone.items():
            self.by_class[row_class] = self.held(row_class).plus(amount, -1)
            self.outbox[lane] = self.outbox.get(lane, 0) - amount.rows

    def move(self, before: State, after: State) -> None:
        """Count a task's transition."""
        by_state = self.by_state
        if before is State.LEASED:
            before = State.READY
        by_state[before] = by_state.get(before, 0) - 1
        by_state[after] = by_state.get(after, 0) + 1

    def count(self, state: State, change: int) -> None:
        """Add to the number of tasks in a state; leased ones are counted as ready."""
        state = stored_state(state)
        self.by_state[state] = self.by_state.get(state, 0) + change


def sealed_book(book: Book) -> bytes:
    """Return what is written of a book: from a wrong counter new numbers would follow."""
    return seal(msgspec.json.encode(book))


def book_of(text: bytes) -> Book:
    """Return a book that was written.  Raises StoreDamaged."""
    try:
        whole = unseal(text)
        if whole is None:
            raise StoreDamaged("the store's own row is not as it was written")
        return msgspec.json.decode(whole, type=Book)
    except MALFORMED as error:
        raise StoreDamaged(f"the store's own row cannot be read: {error}") from error


def stored_state(state: State) -> State:
    """Return the state as it is written down: a lease lives in memory only."""
    return State.READY if state is State.LEASED else state


@lru_cache(maxsize=1024)
def fence_of(text: str | None) -> Fence | None:
    """Return the fence that a column holds.  Raises StoreDamaged."""
    try:
        return None if text is None else parse_fence(text)
    except SpecError as error:
        raise StoreDamaged(f"a stored fence cannot be read: {error}") from error


def packed_spec(task: TaskSpec) -> bytes:
    """Return a task as its body holds it: MessagePack of what differs from the defaults, sealed.

    Shorter than JSON, for the page that a body lies in is logged when it is written and when it is freed.
    Defaults are part of the stored form: a changed one needs a schema step.
    """
    sparse = _sparse(task)
    sparse["spec"] = _sparse(task.spec)
    return seal_packed(msgspec.msgpack.encode(sparse))


def _sparse(value: msgspec.Struct) -> dict[str, Any]:
    tag, names, defaults, take = _shape(type(value))
    told = zip(names, defaults, take(value), strict=True)
    # A default is nearly always the very same object, and that is told much faster than a difference.
    sparse = {name: each for name, default, each in told if each is not default and each != default}
    return tag | sparse if tag else sparse


@cache
def _shape(kind: type[msgspec.Struct]) -> tuple[dict[str, Any], list[str], list[Any], Callable[[Any], Any]]:
    """Return a type's tag, its fields' names and defaults, and what takes their values from one."""
    config, fields = kind.__struct_config__, msgspec.structs.fields(kind)
    tag = {} if config.tag is None else {str(config.tag_field): config.tag}
    made = ((field.name, field.default_factory) for field in fields)
    empty = {name: factory() for name, factory in made if callable(factory)}
    names = [field.name for field in fields]
    return tag, names, [empty.get(field.name, field.default) for field in fields], attrgetter(*names)


def readable_spec_of(body: object) -> TaskSpec | None:
    """Return the task, None when its stored form cannot be read any more, or is not what was written.

    Earlier versions wrote JSON: nothing packed begins as it does.
    """
    if not isinstance(body, bytes):
        return None
    is_json = body.startswith(b"{")
    whole = unseal(body) if is_json else unseal_packed(body)
    decode = msgspec.json.decode if is_json else msgspec.msgpack.decode
    try:
        return None if whole is None else decode(whole, type=TaskSpec)
    except MALFORMED:
        return None


def spec_of(row: TaskRow, body: bytes) -> TaskSpec:
    """Return the task; one that cannot be read keeps its kind, so that it can still be listed and ended."""
    return readable_spec_of(body) or TaskSpec(spec=CommandSpec(argv=("(damaged)",)), kind=row.kind)


def record_of(row: TaskRow, body: bytes, story: Sequence[EventRow]) -> TaskRecord:
    """Return what people and APIs see of a row.  story: its events, the oldest first, or the newest two."""
    events = events_of(story, row.task_id)
    return TaskRecord(
        task_id=row.task_id,
        task=spec_of(row, body),
        state=row.state,
        attempt=row.attempt,
        placement=fence_of(row.placement),
        home_node=row.home_node,
        placed_on=row.placed_on,
        accepted_wall_s=row.accepted_wall_s,
        ended_wall_s=row.ended_wall_s,
        fence=fence_of(row.fence) if row.ended_wall_s is not None else None,
        outcome=events[-1].outcome if events and row.state in FINAL else None,
        waiting_for=row.waiting_for,
        decision=latest_decision(events),
        attempts=attempts_of(events),
    )


def story_of(row: TaskRow, story: Sequence[EventRow]) -> tuple[StoryEvent, ...]:
    """Return a task's story for people, its acceptance first.  story: its events, the oldest first."""
    accepted = StoryEvent(what=ACCEPTED, at_wall_s=row.accepted_wall_s)
    return (accepted, *events_of(story, row.task_id))


def with_room(depth: Depth, usage: Usage, limits: Limits) -> Depth:
    """Return the counters with how short room is, and why."""
    now = level(usage, limits)
    shortage = why_full(usage, limits) if now >= Level.SLOWED else ""
    return msgspec.structs.replace(depth, level=now, shortage=shortage)


def depth_of(book: Book, leased: int, bytes_used: int) -> Depth:
    """Return the counters, with the leases that memory holds."""
    by_state = {state: book.by_state.get(state, 0) for state in State}
    by_state[State.READY] -= leased
    by_state[State.LEASED] = leased
    outbox = {lane: book.outbox.get(lane, 0) for lane in Lane}
    written = {lane: book.outbox_seq.get(lane, 0) for lane in Lane}
    by_class = {row_class: book.held(row_class) for row_class in RowClass}
    return Depth(by_state=by_state, outbox=outbox, bytes_used=bytes_used, written=written, by_class=by_class)
