"""What time asks of the queue: due tasks, expiry, lapsed placements, pruning. Rules only.

Time is powered-on seconds of the store.
"""

from __future__ import annotations

from skerry.ids import TaskId
from skerry.messages import LEASE_RAN_OUT, Outcome
from task_queue.awaiting import run_out
from task_queue.eviction import make_room
from task_queue.losses import next_report_on_s
from task_queue.operations import Advance, Advanced
from task_queue.recurring import fire_due, sooner_with_recurring
from task_queue.remembering import forget_old
from task_queue.rows import TaskRow
from task_queue.streams import trim
from task_queue.task import FINAL, Event, State
from task_queue.transaction import Transaction

#: Ended tasks are forgotten together when they exceed what is kept by its so many-th part.
FORGET_SHARE = 100
#: How a task ends whose time ran out here.
TIME_RAN_OUT = Outcome(status="expired", error="its time ran out before it succeeded")

Passed = tuple[tuple[TaskId, State], ...]


def advance(tx: Transaction, op: Advance) -> Advanced:
    """Do what is due by now, at most `limit` of each kind."""
    expired = _expire(tx, op.limit)
    dropped = _lapse(tx, op.limit)
    elsewhere = [(row.task_id, run_out(tx, row)) for row in tx.tables.overdue(tx.on_s, op.limit)]
    ready = sum(_fall_due(tx, row) is State.READY for row in tx.tables.due(tx.on_s, op.limit))
    for lane, upto in list(tx.book.trimmed.items()):
        trim(tx, lane, upto)
    _prune(tx, op.limit)
    fired = fire_due(tx, op.limit)
    make_room(tx)
    return Advanced(
        ready=ready,
        expired=expired + _came_to(State.EXPIRED, elsewhere),
        given_up=_came_to(State.UNKNOWN, elsewhere),
        dropped=dropped,
        fired=fired,
        next_due_in_s=sooner_with_recurring(tx, _next_due_in_s(tx)),
    )


def _came_to(after: State, elsewhere: list[tuple[TaskId, State]]) -> Passed:
    return tuple((task_id, State.HANDED_OVER) for task_id, state in elsewhere if state is after)


def _fall_due(tx: Transaction, row: TaskRow) -> State:
    state = tx.state_in_turn(row.queue_key, row.seq)
    return tx.move(row, Event.DUE, state, due_on_s=None).state


def _expire(tx: Transaction, limit: int) -> Passed:
    rows = [tx.seen(row) for row in tx.tables.expiring(tx.on_s, limit)]
    for row in rows:
        current = tx.find(row.task_id)  # ending one task of a key makes the next one ready
        assert current is not None
        tx.end(current, Event.EXPIRED, State.EXPIRED, TIME_RAN_OUT)
    return tuple((row.task_id, row.state) for row in rows)


def _lapse(tx: Transaction, limit: int) -> Passed:
    if tx.book.renewed_on_s > tx.on_s:
        return ()
    rows = [tx.seen(row) for row in tx.tables.lapsed(tx.on_s, limit)]
    for row in rows:
        current = tx.find(row.task_id)
        assert current is not None
        tx.refuse_placement(current, LEASE_RAN_OUT)
    return tuple((row.task_id, row.state) for row in rows)


def _prune(tx: Transaction, limit: int) -> None:
    """Forget the oldest ended tasks, too old or too many; those that must make room are counted: eviction.

    Too many gather first, a hundredth of what is kept: ten at a time cost 3.7 KiB of log each, 500 one.
    """
    if tx.book.salvage is not None:
        return  # what belongs to them, their stories and what indexes say, is still to be brought over
    kept, keep = sum(tx.book.by_state.get(state, 0) for state in FINAL), tx.limits.keep_ended
    is_slice = kept - keep >= max(1, keep // FORGET_SHARE)
    surplus = min(limit, kept - keep) if is_slice else 0
    old = tx.tables.ended_before(tx.on_s - tx.limits.keep_ended_s, limit)
    for row in old if len(old) >= surplus else tx.tables.ended_before(tx.on_s, surplus):
        tx.forget(row)
    forget_old(tx, limit)


def _next_due_in_s(tx: Transaction) -> float | None:
    due, expiry, lapse, overdue = tx.tables.next_times()
    lapse = None if lapse is None else max(lapse, tx.book.renewed_on_s)
    told = next_report_on_s(tx)
    times = [at for at in (due, expiry, lapse, overdue, told) if at is not None]
    return max(0.0, min(times) - tx.on_s) if times else None
