"""Commits of the core: which are on their way, and what the disk refused. An outcome is never forgotten.

A refused claim or start is simply made again later. What reports something that has happened (an end, a
hand-over) is kept and written again until the disk takes it; meanwhile nothing new is claimed or started.
"""

from __future__ import annotations

from edge_agent.core.actions import ClearAlarm, Commit, RaiseAlarm
from edge_agent.core.entry import Phase
from edge_agent.core.state import Turn
from task_queue.operations import Advance, Claim, Operation, Start

ALARM = "storage"


def commit(turn: Turn, *operations: Operation) -> None:
    """Have the operations committed together, or keep them while the disk refuses."""
    storage = turn.state.storage
    if not storage.is_ok:
        storage.unsaved.extend(operations)
        return
    _send(turn, operations)


def _send(turn: Turn, operations: tuple[Operation, ...]) -> None:
    storage = turn.state.storage
    token, storage.next_token = storage.next_token, storage.next_token + 1
    storage.in_flight[token] = operations
    turn.act(Commit(token=token, operations=operations))


def commit_failed(turn: Turn, token: int, message: str) -> None:
    """Take a refusal of the disk: keep what must not be lost, give back the rest, try again later."""
    state, storage = turn.state, turn.state.storage
    for operation in storage.in_flight.pop(token, ()):
        _give_back(turn, operation)
    if storage.is_ok:
        storage.failed_since, storage.delay_s = turn.uptime_s, state.limits.storage_retry_first_s
        turn.act(RaiseAlarm(name=ALARM, message=f"the queue cannot write for now: {message}"))
    else:
        storage.delay_s = min(storage.delay_s * 2, state.limits.storage_retry_most_s)
    storage.retry_at = turn.uptime_s + storage.delay_s
    state.count("storage_failures")


def _give_back(turn: Turn, operation: Operation) -> None:
    state = turn.state
    match operation:
        case Claim():
            state.claim_in_flight, state.want_claim = False, True
        case Advance():
            state.advance_in_flight = False
            state.advance_at = turn.uptime_s
        case Start(task_id=task_id):
            entry = state.entries.get(task_id)
            if entry is not None and entry.is_gone:
                state.remove(entry)
            elif entry is not None:
                state.move(entry, Phase.QUEUED)
        case _:
            state.storage.unsaved.append(operation)


def retry(turn: Turn) -> None:
    """Write what was kept once more, each in its own commit so that one cannot hold up the others."""
    storage = turn.state.storage
    storage.retry_at = None
    kept, storage.unsaved = storage.unsaved, []
    for operation in kept or [Advance()]:
        _send(turn, (operation,))


def commit_worked(turn: Turn, token: int) -> tuple[Operation, ...]:
    """Return the operations of a commit that is on disk; the disk is well again if it was not."""
    storage = turn.state.storage
    operations = storage.in_flight.pop(token, ())
    if not storage.is_ok:
        storage.failed_since = storage.retry_at = None
        kept, storage.unsaved = storage.unsaved, []
        for operation in kept:
            _send(turn, (operation,))
        turn.act(ClearAlarm(name=ALARM))
    return operations
