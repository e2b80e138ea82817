"""The only ways in which a task changes hands: placed, given back, ended, withdrawn.

Owns the ledger rows and commands of each change, in one piece. Decides nothing about when.
"""

from __future__ import annotations

import msgspec

from cloud_coordinator.core.actions import TaskPlacedFirst
from cloud_coordinator.core.turn import Turn
from cloud_coordinator.ledger.values import LedgerTask, Placement, TaskState
from cloud_coordinator.placement.request import AppliedPlacement
from cloud_coordinator.placement.snapshot import Reservation
from skerry.fence import Fence
from skerry.messages import Lane, Outcome, PlaceTask, RevokePlacement, TaskPlaced, TaskReturned
from skerry.task import TaskSpec, is_out_of_time, with_time_left

replace = msgspec.structs.replace


def accept(turn: Turn, entry: LedgerTask) -> None:
    """Write a task that was offered and have it planned; one that has no time left expires at once."""
    turn.ledger.put_task(entry)
    if entry.task is not None and is_out_of_time(entry.task):
        expire(turn, entry)
        return
    turn.plan_soon(entry.task_id)
    expiry = turn.expiry_of(entry)
    if expiry is not None:
        turn.memory.expiries[entry.task_id] = expiry


def place(turn: Turn, entry: LedgerTask, applied: AppliedPlacement) -> None:
    """Put a task under a new placement; an earlier one is over from here on.

    A task with no time left expires instead.
    """
    if turn.is_past(turn.memory.expiries.get(entry.task_id)):
        expire(turn, entry)
        return
    if entry.state is TaskState.PLACED:
        _end_placement(turn, entry, "lapsed", f"{entry.node} was not heard for {turn.limits.lease_s:g} s")
        _revoke(turn, entry, "placed elsewhere after its lease ran out")
    assert entry.task is not None  # only offered tasks are planned
    fence, node = applied.fence, applied.node
    command = PlaceTask(
        task_id=entry.task_id,
        task=_with_time_left(turn, entry),
        fence=fence,
        home_node=entry.home_node,
        lease_s=turn.limits.lease_s,
        decision=applied.decision,
    )
    seq = turn.command(node, command, Lane.CONTROL)
    placed = replace(
        entry,
        state=TaskState.PLACED,
        node=node,
        fence=fence,
        command_seq=seq,
        placed=turn.moment,
        placements=entry.placements + 1,
        waits="",
    )
    turn.ledger.put_task(placed)
    turn.ledger.add_placement(
        Placement(
            task_id=entry.task_id,
            fence=fence,
            node=node,
            placed_wall_s=turn.wall_s,
            decision=applied.decision,
        )
    )
    notice = TaskPlaced(task_id=entry.task_id, fence=fence, node=node, decision=applied.decision)
    turn.command(entry.home_node, notice, Lane.LIVE)
    _hold(turn, entry, applied)


def give_back(turn: Turn, entry: LedgerTask, ended: str, reason: str, *, revoke: bool) -> None:
    """End the current placement and have the task planned again."""
    _end_placement(turn, entry, ended, reason)
    if revoke:
        _revoke(turn, entry, reason)
    excluded = {**entry.excluded, entry.node: reason} if ended == "refused" else entry.excluded
    turn.memory.refused_at[entry.task_id] = turn.now
    _let_go(turn, entry)
    turn.ledger.put_task(
        replace(entry, state=TaskState.PENDING, node="", command_seq=0, placed=None, excluded=excluded)
    )
    turn.plan_soon(entry.task_id)


def end(turn: Turn, entry: LedgerTask, fence: Fence, outcome: Outcome, attempts: int = 0) -> None:
    """Commit a task's end and send it home."""
    if entry.state is TaskState.PLACED:
        _end_placement(turn, entry, "ended", outcome.status)
    _let_go(turn, entry)
    turn.ledger.put_task(
        replace(
            entry,
            state=TaskState.ENDED,
            fence=fence,
            node=outcome.node or entry.node,
            outcome=outcome,
            attempts=max(attempts, entry.attempts),
            ended_wall_s=turn.wall_s,
            waits="",
        )
    )
    turn.forget(entry.task_id)
    turn.count("tasks_ended", reason=outcome.status)
    send_home(turn, entry, fence, outcome)


def send_home(turn: Turn, entry: LedgerTask, fence: Fence, outcome: Outcome) -> None:
    """Tell the home node how its task ended; the command waits for it as long as it takes."""
    returned = TaskReturned(task_id=entry.task_id, fence=fence, outcome=outcome)
    turn.command(entry.home_node, returned, Lane.LIVE)


def give_up(turn: Turn, entry: LedgerTask, reason: str) -> None:
    """End a placed at-most-once task of which nobody can say whether it took effect."""
    assert entry.fence is not None  # it is placed
    _end_placement(turn, entry, "lapsed", reason)
    _revoke(turn, entry, reason)
    end(turn, entry, entry.fence, Outcome(status="unknown", error=reason, node=entry.node))


def expire(turn: Turn, entry: LedgerTask) -> None:
    """End a task whose own time ran out before it was done."""
    assert entry.task is not None  # only offered tasks expire here
    if entry.state is TaskState.PLACED:
        _end_placement(turn, entry, "lapsed", "the task's own time ran out")
        _revoke(turn, entry, "the task's own time ran out")
    waits = f": {entry.waits}" if entry.waits else ""
    error = f"expired {entry.task.expires_after_s:g} s after it was offered{waits}"
    end(turn, entry, entry.fence or Fence(), Outcome(status="expired", error=error))


def withdraw(turn: Turn, entry: LedgerTask, outcome: Outcome | None = None) -> None:
    """End a task at its home's word; whoever has it is told to drop it."""
    if entry.state is TaskState.PLACED:
        _end_placement(turn, entry, "withdrawn", "cancelled by its submitter")
        _revoke(turn, entry, "cancelled by its submitter")
    _let_go(turn, entry)
    turn.ledger.put_task(
        replace(entry, state=TaskState.WITHDRAWN, outcome=outcome, ended_wall_s=turn.wall_s, waits="")
    )
    turn.forget(entry.task_id)
    turn.count("tasks_withdrawn")


def reserve(turn: Turn, node: str, reservation: Reservation) -> None:
    """Take room on a node until the placement is over."""
    holder = turn.memory.nodes.get(node)
    if holder is not None:
        holder.reservations[reservation.task_id] = reservation


def tell_to_drop(turn: Turn, node: str, task_id: str, fence: Fence, reason: str) -> None:
    """Revoke whatever a node believes to hold under an old fence."""
    turn.command(node, RevokePlacement(task_id=task_id, fence=Fence(fence.path), reason=reason), Lane.CONTROL)


def _hold(turn: Turn, entry: LedgerTask, applied: AppliedPlacement) -> None:
    """Volatile side of a placement: its lease, its room, no longer waiting."""
    memory = turn.memory
    _let_go(turn, entry)
    memory.queue.drop(entry.task_id)
    memory.told.pop(entry.task_id, None)
    memory.crowded.pop(entry.task_id, None)
    memory.leases[entry.task_id] = turn.now.plus(turn.limits.lease_s)
    reservation = Reservation(
        task_id=entry.task_id,
        node=applied.node,
        device=applied.device,
        memory_bytes=applied.memory_bytes,
        expected_s=applied.expected_s,
    )
    reserve(turn, applied.node, reservation)
    if not entry.placements:
        waited_s = entry.received.age_s(turn.now, turn.wall_s)
        turn.act(TaskPlacedFirst(entry.task_id, applied.node, waited_s))


def _let_go(turn: Turn, entry: LedgerTask) -> None:
    turn.memory.leases.pop(entry.task_id, None)
    turn.memory.absences.pop(entry.task_id, None)
    holder = turn.memory.nodes.get(entry.node)
    if holder is not None and holder.reservations.pop(entry.task_id, None) is not None:
        turn.room_freed()


def _end_placement(turn: Turn, entry: LedgerTask, ended: str, reason: str) -> None:
    assert entry.fence is not None  # it is placed
    turn.ledger.end_placement(entry.task_id, Fence(entry.fence.path), ended, reason, turn.wall_s)
    turn.count("placements_over", reason=ended)


def _revoke(turn: Turn, entry: LedgerTask, reason: str) -> None:
    assert entry.fence is not None  # it is placed
    tell_to_drop(turn, entry.node, entry.task_id, entry.fence, reason)


def _with_time_left(turn: Turn, entry: LedgerTask) -> TaskSpec:
    """The task with what is left of its own time: the time it was here is over."""
    task = entry.task
    assert task is not None  # only offered tasks are placed
    expiry = turn.memory.expiries.get(entry.task_id)
    waited_s = entry.received.age_s(turn.now, turn.wall_s)
    return with_time_left(
        task,
        expires_in_s=None if expiry is None else -turn.now.since(expiry),
        deadline_in_s=None if task.deadline_s is None else task.deadline_s - waited_s,
    )
