"""Making room: what was kept for a look goes first, then the oldest telemetry. Rules only.

No open task, no report of one and no state is touched: what was accepted ends by its own terms.
"""

from __future__ import annotations

from skerry.messages import Lane
from task_queue.limits import MESSAGE_OVERHEAD_BYTES, ROW_OVERHEAD_BYTES
from task_queue.retention import Amount, RowClass, total
from task_queue.transaction import Transaction
from task_queue.watermarks import SAMPLE, Level

#: Ended tasks and rows of telemetry that go at a time, and in one commit at most: a longer one would hold up
#: those behind it.
FORGET_SLICE = 50
EVICT_SLICE = 500
EVICT_MOST = 2000
#: The lanes in the order in which they give telemetry up.
_ORDER = (Lane.BACKLOG, Lane.LIVE, Lane.CONTROL)


def is_kept(tx: Transaction) -> bool:
    """Decide whether the next row of telemetry is kept: every one, one of so many, or none."""
    every = SAMPLE[tx.room.level]
    if every == 1:
        return True
    tx.book.telemetry_seen += 1
    return every > 0 and tx.book.telemetry_seen % every == 0


def drop(tx: Transaction, size_bytes: int) -> None:
    """Count a row of telemetry that was not let in."""
    reason = "refused" if tx.room.level is Level.CLOSED else "sampled"
    tx.lose(RowClass.TELEMETRY, reason, Amount(1, size_bytes))


def make_room(tx: Transaction) -> None:
    """Evict by class, then age, in slices, until room is no longer short or this commit did enough."""
    if tx.is_swept:
        return
    most = EVICT_SLICE if tx.room.is_disk_short else EVICT_MOST
    while tx.room.is_evicting(Level.SAMPLED) and tx.evicted < most and _forget_ended(tx):
        pass
    for lane in _ORDER:
        while tx.room.is_evicting(Level.URGENT) and tx.evicted < most and _evict_telemetry(tx, lane):
            pass
    tx.is_swept = tx.room.is_evicting(Level.URGENT)


def _forget_ended(tx: Transaction) -> bool:
    """Forget the tasks that ended first, though the settings would keep them; say whether there were any."""
    rows = tx.tables.ended_before(tx.on_s, FORGET_SLICE)
    size_bytes = sum(row.size_bytes for row in rows)
    for row in rows:
        tx.forget(row)
    _lost(tx, "history", Amount(len(rows), size_bytes), ROW_OVERHEAD_BYTES)
    return bool(rows)


def _evict_telemetry(tx: Transaction, lane: Lane) -> bool:
    """Evict the lane's oldest telemetry; say whether there was any."""
    if not tx.book.held(RowClass.TELEMETRY).rows:
        return False
    gone_already = max(tx.book.trimmed.get(lane, 0), tx.sent.get(lane, 0))  # or may be: it is not lost
    gone = tx.tables.evict_outbox(lane, gone_already, EVICT_SLICE)
    tx.book.forget_rows(lane, gone)
    _lost(tx, RowClass.TELEMETRY, total(gone), MESSAGE_OVERHEAD_BYTES)
    return bool(gone)


def _lost(tx: Transaction, lost_class: str, amount: Amount, overhead_bytes: int) -> None:
    if amount.rows:
        tx.lose(lost_class, "evicted", amount)
        tx.evicted += amount.rows
        tx.room.take(-amount.size_bytes - amount.rows * overhead_bytes)
