"""Outbox, inbox and small named values. Rules only: what is appended, acknowledged and marked."""

from __future__ import annotations

import msgspec

from skerry.messages import Lane
from task_queue.eviction import drop, is_kept, make_room
from task_queue.limits import MESSAGE_OVERHEAD_BYTES, META_LIMIT_BYTES, TRIM_SLICE
from task_queue.operations import Appended, AppendOutbox, Dropped, MarkInbox, Ok, PutMeta, Refused, TrimOutbox
from task_queue.retention import RowClass, class_of
from task_queue.transaction import Transaction
from task_queue.watermarks import Level


def append_outbox(tx: Transaction, op: AppendOutbox) -> Appended | Dropped | Refused:
    """Queue a message, unless no batch could carry it; of telemetry only as much as room allows."""
    if len(op.body) > tx.limits.max_row_bytes:
        return Refused(
            reason="too_large",
            message=f"a {op.kind} message of {len(op.body)} bytes; the limit is {tx.limits.max_row_bytes}",
        )
    if class_of(op.kind) is RowClass.TELEMETRY:
        if tx.room.level >= Level.URGENT:
            make_room(tx)
        if not is_kept(tx):
            drop(tx, len(op.body))
            return Dropped()
        tx.room.take(len(op.body) + MESSAGE_OVERHEAD_BYTES)
    return Appended(seq=tx.append(op.lane, op.kind, op.body, key=op.key, coalesce=op.coalesce))


def trim_outbox(tx: Transaction, op: TrimOutbox) -> Ok:
    """Delete what the other side has committed: a slice now, the rest as time advances."""
    if op.epoch not in ("", tx.epoch):
        return Ok()
    upto = min(op.upto, tx.book.outbox_seq.get(op.lane, 0))  # a peer's mistake must not hide rows to come
    if upto > tx.book.trimmed.get(op.lane, 0):
        trim(tx, op.lane, upto)
    return Ok()


def trim(tx: Transaction, lane: Lane, upto: int) -> None:
    """Delete a slice of the lane's acknowledged rows."""
    tx.book.trimmed[lane] = upto
    if tx.book.outbox.get(lane, 0):
        tx.book.forget_rows(lane, tx.tables.trim_outbox(lane, upto, TRIM_SLICE))


def mark_inbox(tx: Transaction, op: MarkInbox) -> Ok:
    """Raise the mark of a source's stream."""
    tx.tables.mark_inbox(op.source, op.epoch, op.lane, op.upto)
    return Ok()


def put_meta(tx: Transaction, op: PutMeta) -> Ok | Refused:
    """Keep a small value."""
    body = msgspec.json.encode(op.value)
    if len(body) > META_LIMIT_BYTES:
        return Refused(
            reason="too_large", message=f"{op.name} is {len(body)} bytes, the limit is {META_LIMIT_BYTES}"
        )
    tx.tables.put_meta(op.name, body)
    return Ok()
