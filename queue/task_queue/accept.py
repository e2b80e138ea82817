"""The door: which tasks are taken in, which are known already, which are refused. Rules only."""

from __future__ import annotations

from skerry.messages import Lane, Outcome, PlacementRefused, TaskEnded
from skerry.task import TaskSpec
from task_queue.eviction import make_room
from task_queue.limits import ROW_OVERHEAD_BYTES
from task_queue.operations import Enqueue, Enqueued, Refused
from task_queue.remembering import begin_anew
from task_queue.rows import RememberedRow, TaskRow, fence_of, packed_spec
from task_queue.store import scoped_key
from task_queue.story import Detail, events_of
from task_queue.task import FINAL, OPEN, Event, State
from task_queue.transaction import Transaction, fenced, not_allowed
from task_queue.watermarks import LOWEST_PRIORITY, RETRY_AFTER_S, SHARES, Level, level_at, pause_s


def enqueue(tx: Transaction, op: Enqueue) -> Enqueued | Refused:
    """Accept a task, or recognise one accepted before; a placement that cannot be taken goes back."""
    answer = _enqueue(tx, op)
    if op.placement is not None and isinstance(answer, Refused):
        refusal = PlacementRefused(task_id=op.task_id, fence=op.placement, reason=answer.message)
        tx.send(Lane.LIVE, refusal, key=op.task_id)
    return answer


def _enqueue(tx: Transaction, op: Enqueue) -> Enqueued | Refused:
    known = tx.find(op.task_id) if op.placement is not None else None
    if known is not None:
        return _place_again(tx, known, op)
    request_key = scoped_key(op.task.tenant, op.task.idempotency_key) if op.placement is None else None
    earlier = None if request_key is None else tx.tables.request(request_key)
    if earlier is not None:
        return Enqueued(task_id=earlier, is_new=False)
    left = tx.tables.remembered(op.task_id)
    if left is not None:
        if not _begins_anew(tx, left, op):
            return Enqueued(task_id=op.task_id, is_new=False)
        request_key = left.request_key
    body = packed_spec(op.task)
    refused = _refuse_for_size(tx, op, len(body))
    if refused is None:
        return _insert(tx, op, body, request_key) or Enqueued(task_id=op.task_id, is_new=False)
    return refused if tx.find(op.task_id) is None else Enqueued(task_id=op.task_id, is_new=False)


def _begins_anew(tx: Transaction, left: RememberedRow, op: Enqueue) -> bool:
    """Decide about a task of which only its end is remembered; see _place_again for the rule."""
    if op.placement is None:
        return False
    if left.may_repeat:
        begin_anew(tx, left)
        return True
    outcome = Outcome(status=_STATUS[left.state], error="it ended here before; its record is gone")
    message = TaskEnded(
        task_id=op.task_id,
        task_kind=op.task.kind,
        fence=op.placement.with_attempt(1),
        outcome=outcome,
        is_placed=True,
    )
    tx.send(Lane.LIVE, message, key=op.task_id)
    return False


#: The status that a report gives for the state in which a task ended.
_STATUS = {state: state.value for state in FINAL} | {State.DONE: "succeeded"}


def _insert(tx: Transaction, op: Enqueue, body: bytes, request_key: str | None) -> Enqueued | None:
    """Add the task; None when it is known already."""
    task, seq = op.task, tx.book.next_seq()
    queue_key = scoped_key(task.tenant, task.ordering_key)
    delay_s = task.delay_s if op.placement is None else None  # a placed task has waited at home
    due_on_s, expires_on_s, deadline_on_s = durations(task, tx.on_s)
    placement = None if op.placement is None else str(op.placement)
    row = TaskRow(
        seq=seq,
        task_id=op.task_id,
        state=State.DELAYED if delay_s else tx.state_in_turn(queue_key, seq),
        priority=task.priority,
        turn=seq,
        kind=task.kind,
        is_once=task.effect == "at_most_once",
        retries=task.retries,
        size_bytes=len(body),
        accepted_wall_s=op.wall_s,
        queue_key=queue_key,
        request_key=request_key,
        placement=placement,
        known=placement,
        home_node=op.home_node,
        due_on_s=due_on_s if delay_s else None,
        expires_on_s=expires_on_s,
        deadline_on_s=deadline_on_s,
        lease_on_s=_after(tx.on_s, op.lease_s),
    )
    if not tx.tables.insert(row, body):
        return None
    tx.book.count(row.state, 1)
    tx.room.take(len(body) + ROW_OVERHEAD_BYTES)
    return Enqueued(task_id=op.task_id, pause_s=pause_s(tx.room.share_with(0), task.priority))


def _refuse_for_size(tx: Transaction, op: Enqueue, size: int) -> Refused | None:
    limits = tx.limits
    if size > limits.max_document_bytes:
        return Refused(
            reason="too_large",
            message=f"the task is {size} bytes, the limit is {limits.max_document_bytes}: "
            "put large inputs into the content store and pass their hash",
            task_id=op.task_id,
        )
    return _refuse_for_room(tx, op, size)


def _refuse_for_room(tx: Transaction, op: Enqueue, size: int) -> Refused | None:
    """Refuse when there is no room for this priority, with the seconds after which there may be."""
    need_bytes = size + ROW_OVERHEAD_BYTES
    if tx.room.share_with(need_bytes) < SHARES[Level.SLOWED]:
        return None
    make_room(tx)
    level = level_at(tx.room.share_with(need_bytes))
    lowest = LOWEST_PRIORITY[level]
    if op.task.priority >= lowest:
        return None
    taken = (
        "no task is taken in" if level is Level.CLOSED else f"only tasks of priority {lowest} and above are"
    )
    return Refused(
        reason="full",
        message=f"{tx.room.why_full()}; {taken}",
        task_id=op.task_id,
        retry_after_s=RETRY_AFTER_S[level],
    )


def _place_again(tx: Transaction, row: TaskRow, op: Enqueue) -> Enqueued | Refused:
    """Take a placement of a task that this queue knows.

    What succeeded, expired, was cancelled by wish or may have taken effect is never run again: its end is
    reported under the new placement, which is the only one that home will commit.  What failed or was
    dropped runs again, unless its effect is at_most_once and it has been started.
    """
    placement = op.placement
    assert placement is not None  # enqueue has asked
    if row.placement is None and not row.is_offered:
        return not_allowed(row, "it is this node's own and was not handed over")
    known = fence_of(row.known)
    if known is not None and placement < known:
        return fenced(row, placement)
    if row.placement == str(placement):
        return Enqueued(task_id=row.task_id, is_new=False)
    detail = Detail(fence=str(placement))
    taken = {
        "placement": str(placement),
        "known": str(placement),
        "home_node": op.home_node,
        "lease_on_s": _after(tx.on_s, op.lease_s),
        "waiting_for": "",
    }
    if row.state is State.HANDED_OVER:
        tx.move(row, Event.PLACED, State.READY, detail=detail, turn=row.turn, **taken, **_FRESH)
        return Enqueued(task_id=row.task_id)
    if row.state in OPEN:
        tx.note(row, detail, **taken)
        return Enqueued(task_id=row.task_id, is_new=False)
    if tx.may_run_again(row):
        state = tx.state_in_turn(row.queue_key, row.seq)
        tx.move(row, Event.PLACED, state, detail=detail, turn=tx.book.next_seq(), **taken, **_FRESH)
        return Enqueued(task_id=row.task_id)
    amended = tx.amend(row, **taken)
    tx.report_end(amended, _outcome(tx, row) or _DROPPED_WHILE_STARTED)
    return Enqueued(task_id=row.task_id, is_new=False)


#: Columns of a task that begins anew, with all its tries.
_FRESH = {"tries": 0, "ended_on_s": None, "ended_wall_s": None}

_DROPPED_WHILE_STARTED = Outcome(
    status="unknown",
    error="it was started under an earlier placement, which was revoked: it may have taken effect",
)


def _outcome(tx: Transaction, row: TaskRow) -> Outcome | None:
    newest = tx.newest_event(row)
    before = None if newest is None or newest.prev is None else tx.tables.event(newest.prev)
    events = events_of([event for event in (before, newest) if event is not None], row.task_id)
    return events[-1].outcome if events else None


def durations(task: TaskSpec, on_s: float) -> tuple[float | None, float | None, float | None]:
    """Return when the task is due, expires and meets its deadline, in the store's powered-on seconds."""
    return _after(on_s, task.delay_s), _after(on_s, task.expires_after_s), _after(on_s, task.deadline_s)


def _after(on_s: float, seconds: float | None) -> float | None:
    return None if seconds is None else on_s + seconds
