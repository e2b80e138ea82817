"""Recurring tasks: keeping them, and accepting a task for each time that comes. Rules only.

A time is fired at most once: the task it becomes is accepted in the same commit as the next time, under an
idempotency key made of name and time. The wall clock counts for cron schedules only, and only while trusted.
"""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime

import msgspec

from skerry.clock import is_wall_trusted
from skerry.errors import SpecError, StorageFailed
from skerry.ids import TaskId, millisecond_of
from skerry.recurring import RecurringSpec, check_recurring
from skerry.task import RUN_KEY
from task_queue.accept import enqueue
from task_queue.operations import Cancel, DropRecurring, Enqueue, Enqueued, Ok, PutRecurring, Refused
from task_queue.recurring_row import Progress, RecurringRow
from task_queue.recurring_times import first_after, next_due, passed_by, with_time
from task_queue.task import OPEN
from task_queue.transaction import Transaction

#: Recurring tasks that one store keeps at most.
RECURRING_LIMIT = 1000
#: What is owed is tried again after this, seconds.
TRY_AGAIN_S = 5.0
#: A wall clock that reads so much less than before has stepped back, seconds.
STEP_S = 1.0


def put_recurring(tx: Transaction, op: PutRecurring) -> Ok | Refused:
    """Keep a recurring task. The same again changes nothing; another schedule begins anew from now."""
    try:
        spec = check_recurring(op.spec)
    except SpecError as error:
        return Refused(reason="unsatisfiable", message=str(error))
    known = tx.tables.recurring(spec.name)
    if known is None and len(tx.tables.all_recurring()) >= RECURRING_LIMIT:
        message = f"there are {RECURRING_LIMIT} recurring tasks already: remove one first"
        return Refused(reason="full", message=message)
    row = known or RecurringRow(recurring_id=op.recurring_id, spec=spec)
    if known is None or _schedule(known.spec) != _schedule(spec):
        begun = _replace(row.progress, due=_first_due(tx, spec, row.progress), owed=())
        row = msgspec.structs.replace(row, spec=spec, progress=begun)
    else:
        row = msgspec.structs.replace(row, spec=spec)
    if row != known:
        tx.tables.put_recurring(row)
    return Ok()


def drop_recurring(tx: Transaction, op: DropRecurring) -> Ok | Refused:
    """Forget a recurring task; tasks that it became go on."""
    if tx.tables.recurring(op.name) is None:
        return Refused(reason="not_found", message=f"there is no recurring task {op.name!r} in this queue")
    tx.tables.delete_recurring(op.name)
    return Ok()


def fire_due(tx: Transaction, limit: int) -> tuple[TaskId, ...]:
    """Accept a task for each time that has come, of at most `limit` recurring tasks. Return their ids."""
    is_trusted = is_wall_trusted(tx.wall_s)
    if is_trusted:
        _follow_the_clock(tx)
    rows = tx.tables.due_recurring(tx.on_s, tx.wall_s if is_trusted else -1.0, limit)
    fired: list[TaskId] = []
    for row in rows:
        after, tasks = _look_at(tx, row, is_trusted=is_trusted)
        fired += tasks
        if after != row:
            tx.tables.put_recurring(after)
    return tuple(fired)


def sooner_with_recurring(tx: Transaction, due_in_s: float | None) -> float | None:
    """Return in how many seconds time asks for something: due_in_s, or sooner for a recurring task."""
    on_s, wall_s = tx.tables.next_recurring()
    waits = [] if due_in_s is None else [due_in_s]
    if on_s is not None:
        waits.append(TRY_AGAIN_S if on_s <= tx.on_s else on_s - tx.on_s)
    if wall_s is not None and is_wall_trusted(tx.wall_s):
        waits.append(max(0.0, wall_s - tx.wall_s))
    return min(waits, default=None)


def _follow_the_clock(tx: Transaction) -> None:
    """After a step back the times ahead are counted anew, and are owed no more; those dealt with stay so."""
    if tx.wall_s < tx.book.wall_seen_s - STEP_S:
        for row in tx.tables.all_recurring():
            if row.spec.cron is not None:
                owed = tuple(at for at in row.progress.owed if at <= tx.wall_s)
                due = _first_due(tx, row.spec, row.progress)
                after = msgspec.structs.replace(row, progress=_replace(row.progress, due=due, owed=owed))
                if after != row:
                    tx.tables.put_recurring(after)
    tx.book.wall_seen_s = tx.wall_s


def _look_at(tx: Transaction, row: RecurringRow, *, is_trusted: bool) -> tuple[RecurringRow, list[TaskId]]:
    spec = row.spec
    if spec.cron is not None and not is_trusted:
        return row, []
    progress, pending, in_time = _times_that_came(tx, spec, row.progress)
    progress, tasks, left = _fire(tx, row, progress, pending)
    if in_time is not None and in_time in left:
        progress = _replace(progress, missed=progress.missed + 1)
    owed = () if spec.missed == "skip" else left
    return msgspec.structs.replace(row, progress=_replace(progress, owed=owed)), tasks


def _times_that_came(
    tx: Transaction, spec: RecurringSpec, progress: Progress
) -> tuple[Progress, tuple[float, ...], float | None]:
    """Return the progress with its next time, what is to be fired now, and which of it is not late."""
    now = tx.on_s if spec.cron is None else tx.wall_s
    due = progress.due
    if due is None:
        return _replace(progress, due=_first_due(tx, spec, progress)), progress.owed, None
    if due > now:
        return progress, progress.owed, None
    over = passed_by(spec, due, now, spec.missed_limit, progress.spans)
    if not over.newest:  # a clock that was set back and then right: all of them are dealt with
        return _replace(progress, due=next_due(spec, due, now, progress.spans)), progress.owed, None
    last = over.newest[-1]
    in_time = last if now - last <= spec.grace_s else None
    # A time that is late and made up for by nothing may still come, should the clock step back before it.
    spans = progress.spans if in_time is None else with_time(spec, progress.spans, last)
    missed = over.total - (in_time is not None)
    progress = _replace(
        progress,
        due=next_due(spec, due, now, spans),
        spans=spans,
        missed=progress.missed + missed,
        note=f"late by {now - due:.0f} s" if missed else progress.note,
    )
    return progress, _to_be_fired(spec, progress.owed, over.newest, in_time), in_time


def _to_be_fired(
    spec: RecurringSpec, owed: tuple[float, ...], newest: tuple[float, ...], in_time: float | None
) -> tuple[float, ...]:
    """Apply the rule for missed times."""
    match spec.missed:
        case "skip":
            return () if in_time is None else (in_time,)
        case "once":
            return newest[-1:]
        case "all":
            return (*owed, *newest)[-spec.missed_limit :]


def _fire(
    tx: Transaction, row: RecurringRow, progress: Progress, pending: tuple[float, ...]
) -> tuple[Progress, list[TaskId], tuple[float, ...]]:
    """Accept tasks for the pending times, oldest first, as far as overlap and room allow."""
    tasks: list[TaskId] = []
    for number, at in enumerate(pending):
        task_id = _id_for(row, at, tx.wall_s, progress.last_task)
        firing = _firing(row.spec, at, task_id, tx.wall_s)
        hindrance = _not_at_hand(tx, firing, progress.last_task) or _overlap(tx, row.spec, progress)
        answer = None if hindrance else enqueue(tx, firing)
        if isinstance(answer, Refused):
            hindrance = answer.message
        if not isinstance(answer, Enqueued):
            return _replace(progress, note=hindrance), tasks, pending[number:]
        progress = _replace(
            progress,
            spans=with_time(row.spec, progress.spans, at),
            runs=progress.runs + answer.is_new,
            last_task=answer.task_id,
            last_wall_s=tx.wall_s,
        )
        tasks += [answer.task_id] if answer.is_new else []
    return progress, tasks, ()


def _not_at_hand(tx: Transaction, firing: Enqueue, last: TaskId | None) -> str:
    """Have this run and the one before at hand, should they be in a damaged file; say so when that fails."""
    try:
        tx.have(firing)
        if last is not None:
            tx.have(Cancel(task_id=last))  # whatever a word about that run would need
    except StorageFailed as error:
        return str(error)
    return ""


def _overlap(tx: Transaction, spec: RecurringSpec, progress: Progress) -> str:
    if spec.overlap == "allow" or progress.last_task is None:
        return ""
    last = tx.find(progress.last_task)
    if last is None or last.state not in OPEN:
        return ""
    return f"the run before, {last.task_id}, had not ended"


def _firing(spec: RecurringSpec, at: float, task_id: TaskId, wall_s: float) -> Enqueue:
    key = f"{RUN_KEY}{spec.name}@{_moment(spec, at)}"
    task = msgspec.structs.replace(spec.task, idempotency_key=key)
    return Enqueue(task_id=task_id, task=task, wall_s=wall_s)


def _moment(spec: RecurringSpec, at: float) -> str:
    """Return a time as its key has it: of the wall clock, or of the store's powered-on clock."""
    if spec.cron is None:
        return f"on{at:.3f}"
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%MZ")


def _id_for(row: RecurringRow, at: float, wall_s: float, last: TaskId | None) -> TaskId:
    """Return the id of the task for a time: as ordered as the wall clock allows, unlike any other node's."""
    floor_ms = max(millisecond_of(row.recurring_id), 0 if last is None else millisecond_of(last))
    milliseconds = max(int(wall_s * 1000), floor_ms) & (1 << 48) - 1
    tail = hashlib.sha256(f"{row.recurring_id}@{_moment(row.spec, at)}".encode()).hexdigest()[:20]
    return TaskId(f"{milliseconds:012x}{tail}")


def _first_due(tx: Transaction, spec: RecurringSpec, progress: Progress) -> float | None:
    if spec.cron is None:
        return first_after(spec, tx.on_s)
    return first_after(spec, tx.wall_s, progress.spans) if is_wall_trusted(tx.wall_s) else None


def _schedule(spec: RecurringSpec) -> tuple[float | None, str | None, str]:
    return spec.every_s, spec.cron, spec.timezone


def _replace(progress: Progress, **changes: object) -> Progress:
    return msgspec.structs.replace(progress, **changes)
