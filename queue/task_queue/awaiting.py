"""Tasks that are elsewhere while their own time runs out: what goes along, and how long word is waited for.

Rules only.  A node that is cut off cannot know how its task ended elsewhere, so its time alone ends one only
if nobody can have taken it and a second run would do no harm.  Any other waits for word, but not for ever;
where the coordinator may not know of it, it is asked: by an offer with no time left.
"""

from __future__ import annotations

from skerry.decision import Decision
from skerry.messages import Lane, Outcome, TaskOffered
from skerry.task import with_time_left
from task_queue.rows import TaskRow
from task_queue.task import Event, State
from task_queue.transaction import Transaction

#: What the row says while word is waited for.
OVERDUE = "its own time ran out; how it ended elsewhere is waited for"


def has_time_left(tx: Transaction, row: TaskRow) -> bool:
    """Decide whether the task may still be handed on."""
    return row.expires_on_s is None or row.expires_on_s > tx.on_s


def offer_key(row: TaskRow) -> str:
    """Return the coalescing key of a task's offer."""
    return f"offer:{row.task_id}"


def offer(
    tx: Transaction, row: TaskRow, reason: str, *, decision: Decision | None = None, is_again: bool = False
) -> None:
    """Queue the offer of a task in the place of an earlier one: with the time left; the row keeps its own."""
    task = with_time_left(
        tx.spec(row),
        expires_in_s=None if row.expires_on_s is None else row.expires_on_s - tx.on_s,
        deadline_in_s=None if row.deadline_on_s is None else row.deadline_on_s - tx.on_s,
    )
    message = TaskOffered(task_id=row.task_id, task=task, reason=reason, decision=decision, is_again=is_again)
    tx.send(Lane.LIVE, message, key=row.task_id, coalesce=offer_key(row))


def word_until_s(tx: Transaction, row: TaskRow) -> float | None:
    """Return until when word is waited for, None without a limit, in the store's powered-on seconds."""
    return None if row.expires_on_s is None else row.expires_on_s + tx.limits.await_word_s


def run_out(tx: Transaction, row: TaskRow) -> State:
    """Do what is due for a handed-over task whose time ran out; return the state that it is in then."""
    until_s = word_until_s(tx, row)
    if until_s is None or tx.on_s >= until_s:
        return give_up(tx, row, "the coordinator has not said how it ended")
    is_taken = row.known is not None or not _is_offer_unanswered(tx, row)
    if row.is_once and not is_taken:
        offer(tx, row, OVERDUE)
    else:
        tx.retract(Lane.LIVE, offer_key(row))  # from now on nobody takes it
    if not (row.is_once or is_taken):
        return _end(tx, row, State.EXPIRED, "its time ran out before the coordinator took it")
    return tx.amend(row, waiting_for=OVERDUE, lease_on_s=until_s).state


def give_up(tx: Transaction, row: TaskRow, why: str) -> State:
    """End a task of which nobody will say how it ended."""
    tx.retract(Lane.LIVE, offer_key(row))
    return _end(tx, row, State.UNKNOWN, f"its time ran out, and {why}: it may have taken effect")


def _is_offer_unanswered(tx: Transaction, row: TaskRow) -> bool:
    return tx.tables.newest_coalesced(Lane.LIVE, offer_key(row)) > tx.book.trimmed.get(Lane.LIVE, 0)


def _end(tx: Transaction, row: TaskRow, after: State, error: str) -> State:
    """End the row; its report goes the way of the offer, behind it in case that has gone out already."""
    outcome = Outcome(status=after.value, error=error)
    ended = tx.end(row, Event.EXPIRED, after, outcome, report=False)
    tx.send_end(Lane.LIVE, ended, outcome)
    return ended.state
