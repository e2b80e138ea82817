"""Who holds a task: handing over, taking back, placements given up, revoked and renewed. Rules only."""

from __future__ import annotations

from skerry.fence import Fence
from skerry.messages import Lane, Outcome, TaskWithdrawn
from task_queue.advance import TIME_RAN_OUT
from task_queue.attempts import cancel_here
from task_queue.awaiting import give_up, has_time_left, offer, offer_key, word_until_s
from task_queue.decisions import kept
from task_queue.operations import (
    Cancel,
    Changed,
    Drop,
    HandOver,
    OfferAgain,
    Ok,
    RecordPlacement,
    Refused,
    RefusePlacement,
    RenewPlacements,
    Return,
)
from task_queue.rows import fence_of
from task_queue.story import Detail
from task_queue.task import FINAL, Event, State
from task_queue.transaction import Transaction, ended, fenced, not_allowed, not_found

_END_OF_STATUS = {
    "succeeded": State.DONE,
    "expired": State.EXPIRED,
    "cancelled": State.CANCELLED,
    "unknown": State.UNKNOWN,
}


def hand_over(tx: Transaction, op: HandOver) -> Changed | Refused:
    """Offer a claimed task to the coordinator, with the time left; the row stays until its end is back.

    One with no time left expires instead.
    """
    row = tx.find(op.task_id)
    refused = tx.refuse_unless_leased(row, op.task_id)
    if refused is not None or row is None:
        return refused or not_found(op.task_id)
    if row.placement is not None:
        return not_allowed(row, "it was placed here; refuse the placement instead of handing it over")
    if not has_time_left(tx, row):
        tx.end(row, Event.EXPIRED, State.EXPIRED, TIME_RAN_OUT)
        return Changed(task_id=row.task_id, state=State.EXPIRED, was=State.LEASED)
    offer(tx, row, op.reason, decision=op.decision)
    tx.move(
        row,
        Event.HANDED_OVER,
        State.HANDED_OVER,
        is_offered=True,
        placed_on="",
        waiting_for=op.reason,
        detail=Detail(error=op.reason, decision=kept(op.decision)),
        lease_on_s=row.expires_on_s,
    )
    return Changed(task_id=row.task_id, state=State.HANDED_OVER, was=State.LEASED)


def offer_again(tx: Transaction, op: OfferAgain) -> Changed | Refused:
    """Offer a task that waits elsewhere to a ledger that does not know it."""
    row = tx.find(op.task_id)
    if row is None:
        return not_found(op.task_id)
    if row.state is not State.HANDED_OVER:
        return ended(row) if row.state in FINAL else not_allowed(row, "it is not waiting elsewhere")
    reason = "the coordinator's ledger was lost or restored"
    if not has_time_left(tx, row):
        return Changed(task_id=row.task_id, state=give_up(tx, row, reason), was=row.state)
    offer(tx, row, reason, is_again=True)
    # The ledger that is gone may have had it run: its time alone does not end it any more.
    tx.note(row, Detail(error=reason), placed_on="", waiting_for=reason, lease_on_s=word_until_s(tx, row))
    return Changed(task_id=row.task_id, state=row.state, was=row.state)


def record_placement(tx: Transaction, op: RecordPlacement) -> Changed | Refused:
    """Note where a handed-over task is, or why it waits."""
    row = tx.find(op.task_id)
    if row is None:
        return not_found(op.task_id)
    if row.state in FINAL:
        return ended(row)
    if not row.is_offered:
        return not_allowed(row, "it was not handed over")
    known = fence_of(row.known)
    says_nothing_new = not op.node and not op.fence.path
    if known is not None and op.fence < known and not says_nothing_new:
        return fenced(row, op.fence)
    tx.note(
        row,
        Detail(fence=str(op.fence), node=op.node, decision=kept(op.decision)),
        known=row.known if says_nothing_new else str(Fence(op.fence.path)),
        placed_on=op.node,
        waiting_for="" if op.node else op.decision.reason,
    )
    return Changed(task_id=row.task_id, state=row.state, was=row.state)


def take_back(tx: Transaction, op: Return) -> Changed | Refused:
    """Commit how a handed-over task ended elsewhere; a repetition changes nothing.

    Word that says otherwise than the end which time alone has put to it here is refused, to be counted.
    """
    row = tx.find(op.task_id)
    if row is None:
        return not_found(op.task_id)
    after = _END_OF_STATUS.get(op.outcome.status, State.DEAD)
    if row.state in FINAL:
        is_too_late = (
            row.is_offered and row.state in (State.EXPIRED, State.UNKNOWN) and after is not row.state
        )
        return ended(row) if is_too_late else Changed(task_id=row.task_id, state=row.state, was=row.state)
    if not row.is_offered:
        return not_allowed(row, "it was not handed over")
    known = fence_of(row.known)
    if known is not None and op.fence < known:
        return fenced(row, op.fence)
    tx.end(
        row,
        Event.RETURNED,
        after,
        op.outcome,
        report=False,
        fence=str(op.fence),
        known=str(Fence(op.fence.path)) if op.fence.path else row.known,
        attempt=max(row.attempt, op.fence.attempt),  # a replay here must go on above the attempts made there
        placement=None,
    )
    tx.retract(Lane.LIVE, offer_key(row))
    return Changed(task_id=row.task_id, state=after, was=row.state)


def refuse_placement(tx: Transaction, op: RefusePlacement) -> Changed | Refused:
    """Give a placed, claimed task back."""
    row = tx.find(op.task_id)
    refused = tx.refuse_unless_leased(row, op.task_id)
    if refused is not None or row is None:
        return refused or not_found(op.task_id)
    if row.placement is None:
        return not_allowed(row, "it was not placed here; park it or hand it over")
    dropped = tx.refuse_placement(row, op.reason)
    return Changed(task_id=row.task_id, state=dropped.state, was=State.LEASED)


def drop(tx: Transaction, op: Drop) -> Changed | Refused:
    """Forget a task whose placement was revoked."""
    row = tx.find(op.task_id)
    if row is None:
        return not_found(op.task_id)
    if row.state in FINAL:
        return ended(row)
    placement = fence_of(row.placement)
    if placement is None:
        return not_allowed(row, "it was not placed here")
    if Fence(op.fence.path) < placement:
        return fenced(row, op.fence)
    dropped = tx.drop(row, reason="the placement was revoked")
    return Changed(task_id=row.task_id, state=dropped.state, was=row.state)


def renew(tx: Transaction, op: RenewPlacements) -> Ok:
    """Prolong every placement held, at the cost of one number whatever their count."""
    tx.book.renewed_on_s = max(tx.book.renewed_on_s, tx.on_s + op.lease_s)
    return Ok()


def cancel(tx: Transaction, op: Cancel) -> Changed | Refused:
    """End a task at the submitter's wish; one that was handed over is withdrawn as well."""
    row = tx.find(op.task_id)
    if row is None:
        return not_found(op.task_id)
    if row.state in FINAL:
        return ended(row)
    if row.state is not State.HANDED_OVER:
        return cancel_here(tx, row, op)
    tx.retract(Lane.LIVE, offer_key(row))  # the withdrawal goes ahead of it, in another lane
    tx.send(Lane.CONTROL, TaskWithdrawn(task_id=row.task_id), key=row.task_id)
    error = op.reason or "cancelled after it was handed over"
    outcome = Outcome(status="cancelled", error=error)
    tx.end(row, Event.CANCELLED, State.CANCELLED, outcome, report=False)
    return Changed(task_id=row.task_id, state=State.CANCELLED, was=State.HANDED_OVER)
