"""Which rule answers which operation: the one list. Both stores perform their commits through it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from task_queue import accept, advance, attempts, custody, operations, streams
from task_queue.operations import Answer, Operation
from task_queue.recurring import drop_recurring, put_recurring
from task_queue.transaction import Transaction

RULES: dict[type, Callable[[Transaction, Any], Answer]] = {
    operations.Enqueue: accept.enqueue,
    operations.Claim: attempts.claim,
    operations.Release: attempts.release,
    operations.Start: attempts.start,
    operations.Finish: attempts.finish,
    operations.Fail: attempts.fail,
    operations.Park: attempts.park,
    operations.Replay: attempts.replay,
    operations.HandOver: custody.hand_over,
    operations.RefusePlacement: custody.refuse_placement,
    operations.RecordPlacement: custody.record_placement,
    operations.OfferAgain: custody.offer_again,
    operations.Return: custody.take_back,
    operations.Drop: custody.drop,
    operations.RenewPlacements: custody.renew,
    operations.Cancel: custody.cancel,
    operations.Advance: advance.advance,
    operations.AppendOutbox: streams.append_outbox,
    operations.TrimOutbox: streams.trim_outbox,
    operations.MarkInbox: streams.mark_inbox,
    operations.PutMeta: streams.put_meta,
    operations.PutRecurring: put_recurring,
    operations.DropRecurring: drop_recurring,
}


def perform(tx: Transaction, ops: Sequence[Operation]) -> list[Answer]:
    """Do the operations in order and return their answers."""
    return [RULES[type(op)](tx, op) for op in ops]


def settle_interrupted(tx: Transaction) -> None:
    """After a restart: nothing is running that is not."""
    for row in tx.tables.running():
        attempts.interrupt(tx, row)
