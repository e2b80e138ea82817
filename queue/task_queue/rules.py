"""Which rule answers which operation: the one list. Both stores perform their commits through it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from skerry.errors import InvalidTransition, StoreDamaged
from skerry.messages import Lane
from task_queue import accept, advance, attempts, custody, losses, operations, streams
from task_queue.eviction import make_room
from task_queue.operations import Answer, AppendOutbox, Operation
from task_queue.recurring import drop_recurring, put_recurring
from task_queue.retention import RowClass, class_of
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
    operations.CountLoss: losses.count_loss,
    operations.MarkInbox: streams.mark_inbox,
    operations.PutMeta: streams.put_meta,
    operations.PutRecurring: put_recurring,
    operations.DropRecurring: drop_recurring,
}


def perform(tx: Transaction, ops: Sequence[Operation]) -> list[Answer]:
    """Do the operations in order, count what they lost, and return their answers."""
    if tx.was_short:
        make_room(tx)
    answers = [RULES[type(op)](tx, op) for op in ops]
    losses.settle(tx)
    return answers


def settle_interrupted(tx: Transaction) -> None:
    """After a restart: nothing is running that is not."""
    for row in tx.tables.running():
        try:
            attempts.interrupt(tx, row)
        except (InvalidTransition, TypeError) as error:
            what = f"row {row.seq} of the tasks is named as running, and cannot be"
            raise StoreDamaged(what, row=row.seq) from error
    losses.settle(tx)


#: What keeps accepted work and the link alive, in little room: it may use what is reserved for control. The
#: door is among them, for it has a bound of its own below, and its refusals must be written.
_CONTROL = frozenset(
    {
        operations.Advance,
        operations.Cancel,
        operations.Claim,
        operations.CountLoss,
        operations.Drop,
        operations.Enqueue,
        operations.MarkInbox,
        operations.PutMeta,
        operations.RecordPlacement,
        operations.RefusePlacement,
        operations.Release,
        operations.RenewPlacements,
        operations.Return,
        operations.TrimOutbox,
    }
)


def is_control(ops: Sequence[Operation]) -> bool:
    """Decide whether operations may use the room reserved for control."""
    return all(type(op) in _CONTROL or (isinstance(op, AppendOutbox) and _is_small(op)) for op in ops)


def _is_small(op: AppendOutbox) -> bool:
    """Control itself, or telemetry: when room is short, all that is written of it is its count."""
    return op.lane is Lane.CONTROL or class_of(op.kind) is RowClass.TELEMETRY
