"""What the coordinator's rows ask of the store. Pure: rows in, operations out; unreadable rows are named."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from skerry.decoding import MALFORMED
from skerry.errors import SpecError
from skerry.fence import Fence
from skerry.ids import parse_task_id
from skerry.link.actions import ReceivedRow
from skerry.messages import (
    ActivatePolicy,
    FederationOver,
    FederationRequest,
    Lane,
    PlacementRefused,
    PlaceTask,
    RevokePlacement,
    Row,
    TaskPlaced,
    TaskReturned,
    row_of,
)
from task_queue.operations import (
    AppendOutbox,
    CountLoss,
    Drop,
    Enqueue,
    Operation,
    PutMeta,
    RecordPlacement,
    Return,
)

#: The node's lease ends before the coordinator's: the margin covers the way, and clocks that differ.
LEASE_SHARE = 0.8


#: Under this name the store keeps the last order about policies; the commit of it is what takes it up.
POLICY_ORDER = "policy.order"


class DeadLetter(msgspec.Struct, frozen=True, kw_only=True):
    """A row that cannot be applied: kept apart and counted, so that the stream goes on."""

    seq: int
    kind: str
    reason: str


class _PlaceHead(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a placement that every version can read."""

    task_id: str
    fence: Fence


def operations_of(rows: Sequence[ReceivedRow], *, wall_s: float) -> tuple[list[Operation], list[DeadLetter]]:
    """Return what the rows ask for, in order, and the rows that this version cannot apply.

    A dead-lettered row is reported in the same commit; a placement among them is refused, so that its task is
    placed elsewhere rather than waiting for a lease to run out.
    """
    operations: list[Operation] = []
    dead: list[DeadLetter] = []
    for received in rows:
        if isinstance(received.message, FederationRequest | FederationOver):
            continue  # training's own inbox takes these, in the same commit
        try:
            operations.append(_operation(received, wall_s))
        except SpecError as error:
            letter = DeadLetter(seq=received.row.seq, kind=received.row.kind[:80], reason=str(error)[:500])
            dead.append(letter)
            operations += _answers(received.row, letter)
    return operations, dead


def _operation(received: ReceivedRow, wall_s: float) -> Operation:
    message = received.message
    match message:
        case PlaceTask():
            return Enqueue(
                task_id=parse_task_id(message.task_id),
                task=message.task,
                placement=message.fence,
                home_node=message.home_node,
                lease_s=message.lease_s * LEASE_SHARE,
                wall_s=wall_s,
            )
        case RevokePlacement():
            return Drop(task_id=parse_task_id(message.task_id), fence=message.fence)
        case TaskPlaced():
            return RecordPlacement(
                task_id=parse_task_id(message.task_id),
                fence=message.fence,
                node=message.node,
                decision=message.decision,
            )
        case TaskReturned():
            return Return(
                task_id=parse_task_id(message.task_id), fence=message.fence, outcome=message.outcome
            )
        case ActivatePolicy():
            return PutMeta(name=POLICY_ORDER, value=msgspec.to_builtins(message))
        case _:
            raise SpecError(received.problem or "not a command for a node", field="kind")


def _answers(row: Row, letter: DeadLetter) -> list[Operation]:
    answers: list[Operation] = [
        CountLoss(lost_class="command", reason="not_understood", size_bytes=len(bytes(row.body)))
    ]
    head = _placement_head(row)
    if head is not None:
        reason = f"this version of the agent cannot read the task: {letter.reason}"
        kind, body = row_of(PlacementRefused(task_id=head.task_id, fence=head.fence, reason=reason))
        answers.append(AppendOutbox(lane=Lane.CONTROL, kind=kind, body=body, key=head.task_id))
    return answers


def _placement_head(row: Row) -> _PlaceHead | None:
    if row.kind != PlaceTask.__struct_config__.tag:
        return None
    try:
        return msgspec.json.decode(bytes(row.body), type=_PlaceHead)
    except MALFORMED:
        return None
