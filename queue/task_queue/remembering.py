"""How long an ended task is recognised after its record is gone.

The window ends by count and by powered-on age, both exceeded: a repetition may come after a long outage, or
after a long time without power. Rules only.
"""

from __future__ import annotations

from task_queue.rows import RememberedRow
from task_queue.transaction import Transaction


def begin_anew(tx: Transaction, left: RememberedRow) -> None:
    """Let go of what is left of a task, which is about to be accepted again."""
    tx.tables.forget(left.task_id)
    tx.book.remembered -= 1


def forget_old(tx: Transaction, limit: int) -> None:
    """Forget what is both too much and too old, in slices."""
    surplus = tx.book.remembered - tx.limits.remember_ended
    if surplus > 0:
        before_on_s = tx.on_s - tx.limits.remember_s
        tx.book.remembered -= tx.tables.forget_before(before_on_s, min(surplus, limit))
