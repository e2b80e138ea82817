"""What the rows of a node's stream ask of the ledger. Each is idempotent; only a task's home speaks for it.

Owns the rule of commitment: an end counts only under the exact placement that is current (law 3).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from cloud_coordinator import rounds_inbox
from cloud_coordinator.core import custody, losses, policies
from cloud_coordinator.core.actions import Report
from cloud_coordinator.core.turn import Turn
from cloud_coordinator.ledger.values import DeadLetter, LedgerTask, Mark, TaskState, is_for_good
from skerry.decoding import MALFORMED
from skerry.errors import SpecError
from skerry.fence import Fence
from skerry.ids import parse_task_id
from skerry.link.actions import ReceivedRow
from skerry.messages import (
    LEASE_RAN_OUT,
    DecisionRecorded,
    FederationReply,
    GateEvidence,
    Lane,
    LossReported,
    Outcome,
    PlacementRefused,
    PolicyReport,
    StoreSalvaged,
    TaskEnded,
    TaskOffered,
    TaskReturned,
    TaskWithdrawn,
    UpRow,
)
from skerry.task import check_task, is_out_of_time


class _OfferHead(msgspec.Struct, frozen=True, kw_only=True):
    """The part of an offer that every version can read."""

    task_id: str
    is_again: bool = False


def apply_rows(turn: Turn, node: str, epoch: str, lane: Lane, rows: Sequence[ReceivedRow], upto: int) -> None:
    """Apply a node's rows and move its mark, all inside the caller's transaction."""
    mark = turn.ledger.mark(node, epoch, lane)
    for received in rows:
        if received.row.seq > mark.upto:
            _apply(turn, node, epoch, lane, received)
    known = turn.memory.nodes.get(node)
    session = known.record.session if known else mark.session
    turn.ledger.put_mark(
        node, epoch, lane, Mark(upto=max(upto, mark.upto), session=session, counter=turn.counter)
    )
    turn.count("rows_applied", node=node, by=len(rows))


def _apply(turn: Turn, node: str, epoch: str, lane: Lane, received: ReceivedRow) -> None:
    if received.message is None:
        _bury(turn, node, lane, received, received.problem)
        return
    try:
        _take(turn, node, epoch, received.message)
    except SpecError as error:
        _bury(turn, node, lane, received, str(error))


def _bury(turn: Turn, node: str, lane: Lane, received: ReceivedRow, reason: str) -> None:
    row = received.row
    letter = DeadLetter(
        node=node,
        lane=lane,
        seq=row.seq,
        kind=row.kind[:128],
        body=bytes(row.body),
        reason=reason[:500],
        wall_s=turn.wall_s,
    )
    turn.ledger.add_dead_letter(letter)
    turn.count("dead_letters", node=node, reason=row.kind[:64])
    turn.act(Report("warning", f"row {row.seq} ({row.kind[:80]}) was set aside: {reason[:200]}", node))
    if row.kind == TaskOffered.__struct_config__.tag:
        _send_back(turn, node, bytes(row.body), reason)


def _send_back(turn: Turn, node: str, offer: bytes, reason: str) -> None:
    """Tell the home of an offer that cannot be taken here: it would wait for its end without an end."""
    try:
        head = msgspec.json.decode(offer, type=_OfferHead)
        task_id = parse_task_id(head.task_id)
    except (*MALFORMED, SpecError):
        return
    # What is offered again may have been run for a ledger that is gone.
    status: Literal["unknown", "failed"] = "unknown" if head.is_again else "failed"
    outcome = Outcome(status=status, error=f"the coordinator cannot take it: {reason[:500]}")
    turn.command(node, TaskReturned(task_id=task_id, fence=Fence((turn.term, 1)), outcome=outcome), Lane.LIVE)


def _take(turn: Turn, node: str, epoch: str, message: object) -> None:
    match message:
        case TaskOffered():
            _offered(turn, node, message)
        case TaskEnded():
            _ended(turn, node, message)
        case PlacementRefused():
            _refused(turn, node, message)
        case TaskWithdrawn():
            _withdrawn(turn, node, message)
        case FederationReply():
            rounds_inbox.keep(turn, node, message)
        case LossReported():
            losses.take(turn, node, epoch, message)
        case _:
            _noted(turn, node, message)


def _known(turn: Turn, node: str, task_id: str, *, is_home: bool) -> LedgerTask | None:
    """The task; SpecError when the id is malformed, or another node's and only its home may speak."""
    entry = turn.ledger.task(parse_task_id(task_id))
    if entry is not None and is_home and entry.home_node != node:
        raise SpecError(f"task {task_id} belongs to {entry.home_node}, not to {node}", field="task_id")
    return entry


# --- offers -----------------------------------------------------------------------------------------------


def _offered(turn: Turn, node: str, offer: TaskOffered) -> None:
    entry = _known(turn, node, offer.task_id, is_home=True)
    task = check_task(offer.task)
    if is_out_of_time(task) and entry is not None:
        _asked(turn, entry)
        return
    if entry is not None and (entry.state in (TaskState.PENDING, TaskState.PLACED) or is_for_good(entry)):
        _offered_again(turn, entry)
        return
    if offer.is_again and task.effect == "at_most_once" and entry is None:
        _end_as_unknown(turn, node, offer)
        return
    custody.accept(
        turn,
        LedgerTask(
            task_id=offer.task_id,
            home_node=node,
            kind=task.kind,
            state=TaskState.PENDING,
            received=turn.moment,
            task=task,
            fence=entry.fence if entry else None,
            placements=entry.placements if entry else 0,
            attempts=entry.attempts if entry else 0,
            decision=offer.decision,
        ),
    )
    turn.count("tasks_offered", node=node)


def _asked(turn: Turn, entry: LedgerTask) -> None:
    """Its time is over, says its home, and asks for word: what waits for a place gets none any more."""
    if entry.state is TaskState.PENDING:
        custody.expire(turn, entry)
    else:
        _offered_again(turn, entry)


def _end_as_unknown(turn: Turn, node: str, offer: TaskOffered) -> None:
    """A ledger that is gone may have had it run: once is the most."""
    entry = LedgerTask(
        task_id=offer.task_id,
        home_node=node,
        kind=offer.task.kind,
        state=TaskState.PENDING,
        received=turn.moment,
        task=offer.task,
    )
    turn.ledger.put_task(entry)
    error = "the ledger that had it was lost, or restored from an older copy; it may have taken effect"
    custody.end(turn, entry, Fence((turn.term, 1)), Outcome(status="unknown", error=error))


def _offered_again(turn: Turn, entry: LedgerTask) -> None:
    """A finished task never runs again: its home hears once more how it ended (it may have lost that)."""
    turn.count("duplicates", node=entry.home_node, reason="task.offered")
    if entry.state is TaskState.ENDED and entry.outcome is not None and entry.task is not None:
        custody.send_home(turn, entry, entry.fence or Fence(), entry.outcome)


# --- ends -------------------------------------------------------------------------------------------------


def _ended(turn: Turn, node: str, ended: TaskEnded) -> None:
    if ended.is_placed:
        _ended_here(turn, node, ended)
    else:
        _ended_at_home(turn, node, ended)
    _learn(turn, node, ended)


def _ended_here(turn: Turn, node: str, ended: TaskEnded) -> None:
    """A placed task's end: committed under the current placement, else fenced and its sender told."""
    entry = _known(turn, node, ended.task_id, is_home=False)
    if entry is not None and _is_current(entry, node, ended.fence):
        custody.end(turn, entry, ended.fence, ended.outcome, ended.attempts)
        return
    if entry is not None and entry.state is TaskState.ENDED and entry.fence == ended.fence:
        turn.count("duplicates", node=node, reason="task.ended")
        return
    turn.count("fenced", node=node)
    custody.tell_to_drop(
        turn, node, ended.task_id, ended.fence, "this placement is over; its result came late"
    )


def _is_current(entry: LedgerTask, node: str, fence: Fence) -> bool:
    is_placed_there = entry.state is TaskState.PLACED and entry.node == node and entry.fence is not None
    return is_placed_there and entry.fence is not None and fence.path == entry.fence.path


def _ended_at_home(turn: Turn, node: str, ended: TaskEnded) -> None:
    """A task that its own node finished: recorded; if it was on offer here, it is withdrawn."""
    entry = _known(turn, node, ended.task_id, is_home=True)
    if entry is not None and entry.state in (TaskState.PENDING, TaskState.PLACED):
        custody.withdraw(turn, entry, ended.outcome)
        return
    if entry is not None and is_for_good(entry):
        _compare(turn, entry, ended)
        return
    turn.ledger.put_task(
        LedgerTask(
            task_id=ended.task_id,
            home_node=node,
            kind=ended.task_kind,
            state=TaskState.ENDED,
            received=entry.received if entry else turn.moment,
            fence=ended.fence,
            node=node,
            outcome=ended.outcome,
            attempts=ended.attempts,
            ended_wall_s=turn.wall_s,
        )
    )
    turn.count("tasks_ended_locally", node=node, reason=ended.outcome.status)


def _compare(turn: Turn, entry: LedgerTask, ended: TaskEnded) -> None:
    """Count an end that is known, or one that another end here forestalled: its home had no word in time."""
    status = entry.outcome.status if entry.outcome is not None else entry.state.value
    if status == ended.outcome.status:
        turn.count("duplicates", node=entry.home_node, reason="task.ended")
    else:
        turn.count(
            "ends_disagree", node=entry.home_node, reason=f"{status}, at home {ended.outcome.status}"[:64]
        )


def _learn(turn: Turn, node: str, ended: TaskEnded) -> None:
    """Let placement know how long this kind of task takes on that device."""
    known = turn.memory.nodes.get(node)
    outcome = ended.outcome
    if known is None or known.record.inventory is None or outcome.status != "succeeded":
        return
    for device in known.record.inventory.devices:
        if device.device_id == outcome.device:
            turn.profile.observe(ended.task_kind, device, outcome.runtime_s, scope=node)


# --- refusals and withdrawals -----------------------------------------------------------------------------


def _refused(turn: Turn, node: str, refused: PlacementRefused) -> None:
    entry = _known(turn, node, refused.task_id, is_home=False)
    if entry is None or not _is_current(entry, node, refused.fence):
        turn.count("duplicates", node=node, reason="placement.refused")
        return
    turn.count("placements_refused", node=node)
    ended = "lapsed" if refused.reason == LEASE_RAN_OUT else "refused"  # it may go there again
    custody.give_back(turn, entry, ended, refused.reason[:500], revoke=False)


def _withdrawn(turn: Turn, node: str, withdrawn: TaskWithdrawn) -> None:
    entry = _known(turn, node, withdrawn.task_id, is_home=True)
    if entry is None:
        # The control lane overtook the offer: remember the word, so that the offer places nothing.
        entry = LedgerTask(
            task_id=withdrawn.task_id,
            home_node=node,
            kind="",
            state=TaskState.WITHDRAWN,
            received=turn.moment,
            ended_wall_s=turn.wall_s,
        )
        turn.ledger.put_task(entry)
        turn.count("tasks_withdrawn")
    elif entry.state in (TaskState.PENDING, TaskState.PLACED):
        custody.withdraw(turn, entry)
    else:
        turn.count("duplicates", node=node, reason="task.withdrawn")


# --- for the record -----------------------------------------------------------------------------------------


def _noted(turn: Turn, node: str, message: UpRow | object) -> None:
    match message:
        case StoreSalvaged():
            turn.count("stores_salvaged", node=node)
            turn.count("lost", node=node, reason="store damaged", by=max(0, message.rows_lost))
            text = f"its database was damaged: {message.rows_kept} rows kept, {message.rows_lost} lost"
            turn.act(Report("error", text, node))
        case DecisionRecorded():
            turn.count("decisions", node=node, reason=message.decision.decided_by[:64])
        case GateEvidence() | PolicyReport():
            policies.reported(turn, node, message)
        case _:
            raise SpecError(f"{type(message).__name__} is not a row that a node sends")
