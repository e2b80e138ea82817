"""The loss ledger: every row that was evicted, expired, dead-lettered or not let in, counted by reason.

Counted in the commit in which it is lost; told to the coordinator in the control lane as running totals, so
that a repeated report is harmless. Rules only.
"""

from __future__ import annotations

from skerry.messages import Lane, LossReported
from task_queue.operations import CountLoss, Ok
from task_queue.retention import Amount
from task_queue.transaction import Transaction

#: Reports of losses are written at most this often, powered-on seconds: a flood of losses is none of rows.
REPORT_EVERY_S = 5.0


def count_loss(tx: Transaction, op: CountLoss) -> Ok:
    """Count what was lost outside the store's own rules."""
    tx.lose(op.lost_class, op.reason, Amount(op.rows, op.size_bytes))
    return Ok()


def settle(tx: Transaction) -> None:
    """Write down what this commit lost, and tell the coordinator when it is time."""
    for (lost_class, reason), amount in tx.losses.items():
        tx.tables.add_loss(lost_class, reason, amount)
        tx.book.has_untold_losses = True
    tx.losses.clear()
    if tx.reports and tx.book.has_untold_losses and tx.on_s >= _due_on_s(tx):
        _tell(tx)


def next_report_on_s(tx: Transaction) -> float | None:
    """Return when losses that this commit does not tell are due to be told; None when all are."""
    is_untold = tx.reports and (tx.book.has_untold_losses or bool(tx.losses))
    return _due_on_s(tx) if is_untold and _due_on_s(tx) > tx.on_s else None


def _due_on_s(tx: Transaction) -> float:
    told = tx.book.losses_told_on_s
    return tx.on_s if told is None else told + REPORT_EVERY_S


def _tell(tx: Transaction) -> None:
    for loss in tx.tables.losses():
        if loss.rows == loss.rows_told:
            continue
        message = LossReported(
            lost_class=loss.lost_class,
            reason=loss.reason,
            count=loss.rows,
            size_bytes=loss.size_bytes,
            is_total=True,
        )
        tx.send(Lane.CONTROL, message, key="loss", coalesce=f"loss:{loss.lost_class}:{loss.reason}")
        tx.tables.losses_told(loss)
    tx.book.has_untold_losses, tx.book.losses_told_on_s = False, tx.on_s
