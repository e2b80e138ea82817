"""The window and the attempts: claim, release, start, and how an attempt ends. Rules only."""

from __future__ import annotations

import msgspec

from skerry.fence import Fence
from skerry.messages import Outcome
from skerry.task import TaskSpec
from task_queue.accept import durations
from task_queue.advance import TIME_RAN_OUT
from task_queue.awaiting import has_time_left
from task_queue.decisions import kept
from task_queue.limits import AGEING_SHARE, UNCOUNTED_LIMIT
from task_queue.operations import (
    Cancel,
    Changed,
    Claim,
    Claimed,
    ClaimedTask,
    Fail,
    Finish,
    Park,
    Refused,
    Release,
    Replay,
    Start,
    Started,
)
from task_queue.rows import TaskRow, fence_of, readable_spec_of
from task_queue.story import DAMAGED, Detail
from task_queue.task import FINAL, Event, State
from task_queue.transaction import Transaction, ended, fenced, not_allowed, not_found


def claim(tx: Transaction, op: Claim) -> Claimed:
    """Lease the first ready tasks in memory. Written is only the end of one whose stored form is damaged."""
    claimed: list[ClaimedTask] = []
    while rows := _lease(tx, op.limit - len(claimed)):
        specs = [(row, readable_spec_of(body)) for row, body in rows]
        claimed += [_claimed(tx, row, task) for row, task in specs if task is not None]
        damaged = [row for row, task in specs if task is None]
        for row in damaged:  # it must not hold up the others, nor be asked for again and again
            tx.end(tx.seen(row), Event.EXHAUSTED, State.DEAD, Outcome(status="failed", error=DAMAGED))
        if not damaged:
            break
    return Claimed(tasks=tuple(claimed))


def _lease(tx: Transaction, limit: int) -> list[tuple[TaskRow, bytes]]:
    """Lease so many ready tasks: by priority, then arrival, but each so many-th the oldest of all."""
    leased: list[int] = []
    in_order, oldest = tx.tables.ready(tx.leases), tx.tables.oldest_ready(tx.leases)
    while len(leased) < limit:
        is_oldests_turn = tx.book.claims % AGEING_SHARE == AGEING_SHARE - 1
        seq = next(oldest if is_oldests_turn else in_order, None)
        if seq is None:
            break
        tx.book.claims += 1
        tx.leases.add(seq)
        leased.append(seq)
    return tx.tables.claimed(leased)


def _claimed(tx: Transaction, row: TaskRow, task: TaskSpec) -> ClaimedTask:
    return ClaimedTask(
        task_id=row.task_id,
        task=task,
        attempt=row.attempt,
        placement=fence_of(row.placement),
        expires_in_s=None if row.expires_on_s is None else row.expires_on_s - tx.on_s,
        deadline_in_s=None if row.deadline_on_s is None else row.deadline_on_s - tx.on_s,
        seq=row.turn,
    )


def release(tx: Transaction, op: Release) -> Changed | Refused:
    """Give a claimed task back."""
    row = tx.find(op.task_id)
    refused = tx.refuse_unless_leased(row, op.task_id)
    if refused is not None or row is None:
        return refused or not_found(op.task_id)
    tx.leases.discard(row.seq)
    return Changed(task_id=row.task_id, state=State.READY, was=State.LEASED)


def start(tx: Transaction, op: Start) -> Started | Changed | Refused:
    """Begin an attempt under a fence that no attempt had before; a task with no time left expires instead."""
    row = tx.find(op.task_id)
    refused = tx.refuse_unless_leased(row, op.task_id)
    if refused is not None or row is None:
        return refused or not_found(op.task_id)
    if not has_time_left(tx, row):
        tx.end(row, Event.EXPIRED, State.EXPIRED, TIME_RAN_OUT)
        return Changed(task_id=row.task_id, state=State.EXPIRED, was=State.LEASED)
    attempt = row.attempt + 1
    fence = (fence_of(row.known) or Fence()).with_attempt(attempt)
    text = str(fence)
    tx.move(
        row,
        Event.STARTED,
        State.RUNNING,
        attempt=attempt,
        tries=row.tries + 1,
        fence=text,
        waiting_for="",
        detail=_start_detail(op, text),
    )
    return Started(task_id=row.task_id, fence=fence)


def _start_detail(op: Start, fence: str) -> Detail:
    is_decisions = op.decision is not None and op.decision.device == op.device
    device = "" if is_decisions else op.device
    return Detail(fence=fence, device=device, decision=kept(op.decision))


def finish(tx: Transaction, op: Finish) -> Changed | Refused:
    """Commit a success; the same success a second time changes nothing."""
    row = tx.find(op.task_id)
    if row is not None and row.state is State.DONE and row.fence == str(op.fence):
        return Changed(task_id=row.task_id, state=State.DONE, was=State.DONE)
    refused = _refuse_unless_current(row, op)
    if refused is not None or row is None:
        return refused or not_found(op.task_id)
    size = len(msgspec.json.encode(op.outcome))
    if size > tx.limits.max_document_bytes:
        return Refused(
            reason="too_large",
            message=f"the result is {size} bytes, the limit is {tx.limits.max_document_bytes}: "
            "put it into the content store and return its hash",
            task_id=row.task_id,
        )
    tx.end(row, Event.SUCCEEDED, State.DONE, op.outcome)
    return Changed(task_id=row.task_id, state=State.DONE, was=State.RUNNING)


def fail(tx: Transaction, op: Fail) -> Changed | Refused:
    """End an attempt without success and decide whether there is another."""
    row = tx.find(op.task_id)
    refused = _refuse_unless_current(row, op)
    if refused is not None or row is None:
        return refused or not_found(op.task_id)
    counts = op.counts or row.attempt - row.tries >= UNCOUNTED_LIMIT
    tries = row.tries if counts else row.tries - 1
    if row.is_once and not op.counts:  # how far it came is not known
        after = tx.end(row, Event.INTERRUPTED, State.UNKNOWN, op.outcome, tries=tries)
    elif row.is_once or not op.may_retry or tries > row.retries:
        after = tx.end(row, Event.EXHAUSTED, State.DEAD, op.outcome, tries=tries)
    else:
        after = _retry(tx, row, op, tries)
    return Changed(task_id=row.task_id, state=after.state, was=State.RUNNING)


def _retry(tx: Transaction, row: TaskRow, op: Fail, tries: int) -> TaskRow:
    is_later = op.retry_after_s > 0
    return tx.move(
        row,
        Event.RETRIED,
        State.DELAYED if is_later else State.READY,
        tries=tries,
        due_on_s=tx.on_s + op.retry_after_s if is_later else None,
        waiting_for=op.outcome.error,
        detail=Detail(error=op.outcome.error, runtime_s=op.outcome.runtime_s),
    )


def _refuse_unless_current(row: TaskRow | None, op: Finish | Fail) -> Refused | None:
    if row is None:
        return not_found(op.task_id)
    if row.state in FINAL:
        return ended(row)
    if row.fence != str(op.fence):
        return fenced(row, op.fence)
    if row.state is not State.RUNNING:
        return Refused(
            reason="lease_lost",
            message=f"attempt {op.fence} of task {row.task_id} is over: the task is {row.state}",
            task_id=row.task_id,
        )
    return None


def interrupt(tx: Transaction, row: TaskRow) -> None:
    """Settle an attempt that the end of its agent cut off. It counts: a task may be what killed the agent."""
    if row.is_once:
        outcome = Outcome(status="unknown", error="the agent stopped while it ran: it may have taken effect")
        tx.end(row, Event.INTERRUPTED, State.UNKNOWN, outcome)
    elif row.tries > row.retries:
        outcome = Outcome(
            status="dead",
            error=f"the agent stopped in each of its last attempts ({row.tries}): not tried again",
        )
        tx.end(row, Event.INTERRUPTED, State.DEAD, outcome)
    else:
        tx.move(row, Event.INTERRUPTED, State.READY, detail=Detail(error="the agent stopped while it ran"))


def park(tx: Transaction, op: Park) -> Changed | Refused:
    """Dead-letter a claimed task with its reason."""
    row = tx.find(op.task_id)
    refused = tx.refuse_unless_leased(row, op.task_id)
    if refused is not None or row is None:
        return refused or not_found(op.task_id)
    outcome = Outcome(status="dead", error=op.reason)
    detail = Detail(outcome=outcome, decision=kept(op.decision))
    tx.end(row, Event.EXHAUSTED, State.DEAD, outcome, detail=detail)
    return Changed(task_id=row.task_id, state=State.DEAD, was=State.LEASED)


def replay(tx: Transaction, op: Replay) -> Changed | Refused:
    """Give a dead task all its tries and time again, behind what waits already."""
    row = tx.find(op.task_id)
    if row is None:
        return not_found(op.task_id)
    if row.state is not State.DEAD:
        return not_allowed(row, f"only a dead task can be replayed, this one is {row.state}")
    if row.placement is not None:
        return not_allowed(row, "it was placed here; replay it where it was submitted")
    _, expires_on_s, deadline_on_s = durations(tx.spec(row), tx.on_s)
    state = tx.state_in_turn(row.queue_key, row.seq)
    tx.move(
        row,
        Event.REPLAYED,
        state,
        turn=tx.book.next_seq(),
        tries=0,
        ended_on_s=None,
        ended_wall_s=None,
        waiting_for="",
        expires_on_s=expires_on_s,
        deadline_on_s=deadline_on_s,
    )
    return Changed(task_id=row.task_id, state=state, was=State.DEAD)


def cancel_here(tx: Transaction, row: TaskRow, op: Cancel) -> Changed:
    """End a task that this node holds at the submitter's wish."""
    tx.end(row, Event.CANCELLED, State.CANCELLED, Outcome(status="cancelled", error=op.reason or "cancelled"))
    return Changed(task_id=op.task_id, state=State.CANCELLED, was=row.state)
