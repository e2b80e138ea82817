"""Who still has what was placed on it. Owns the leases: renewed by reports, ended by silence alone (law 6).

A lease that ran out moves nothing by itself: the placement stays current, and its result counts, until
another place is found and the task is put there under a higher fence.
"""

from __future__ import annotations

from cloud_coordinator.core import custody
from cloud_coordinator.core.turn import HOLDS_LIMIT, NodeNow, Turn
from cloud_coordinator.ledger.values import LedgerTask, TaskState
from skerry.messages import Lane, State

#: Reports in a row that must agree before a placement is taken for gone (one may overtake a row).
ABSENCES = 2
#: Within so many intervals a node has said what it holds.
REPORTS = 2


def renew(turn: Turn, node: NodeNow, state: State) -> None:
    """Renew the leases of what the node holds; give back what it neither holds nor has reported as ended."""
    holds = set(state.holds)
    is_complete = len(state.holds) < HOLDS_LIMIT
    for task_id in list(node.reservations):
        if task_id in holds or not is_complete:
            turn.memory.leases[task_id] = turn.now.plus(turn.limits.lease_s)
            turn.memory.absences.pop(task_id, None)
            turn.memory.queue.drop(task_id)  # it was to be placed elsewhere, had nothing been heard
        elif state.outbox == 0:
            _absent(turn, task_id)


def taken(turn: Turn, node: NodeNow, lane: Lane, upto: int) -> None:
    """The node has written commands down: what they placed on it is its own until it can have reported so."""
    before = turn.ledger.head(node.record.name, lane).acked
    reported = turn.now.plus(REPORTS * turn.limits.state_interval_s)
    for task_id in list(node.reservations) if lane is Lane.CONTROL else ():
        until = turn.memory.leases.get(task_id)
        if until is None or until.since(reported) >= 0:
            continue
        entry = turn.ledger.task(task_id)
        if entry is not None and before < entry.command_seq <= upto:
            turn.memory.leases[task_id] = reported
            turn.memory.queue.drop(task_id)


def _absent(turn: Turn, task_id: str) -> None:
    """A report without this task, from a node all of whose rows are applied here."""
    entry = turn.ledger.task(task_id)
    if entry is None or entry.state is not TaskState.PLACED or not _has_command(turn, entry):
        return
    seen = turn.memory.absences.get(task_id, 0) + 1
    turn.memory.absences[task_id] = seen
    if seen >= ABSENCES:
        # Whatever starts is reported, so this never started: its lease ran out there while it waited.
        custody.give_back(turn, entry, "revoked", f"{entry.node} no longer has it", revoke=True)


def _has_command(turn: Turn, entry: LedgerTask) -> bool:
    return turn.ledger.head(entry.node, Lane.CONTROL).acked >= entry.command_seq


def store_lost(turn: Turn, node: str) -> None:
    """The node came back with another store: what it had taken over is gone with the old one."""
    for entry in turn.ledger.placed(node):
        # Where the command is still in the log, it reaches the new store.
        if _has_command(turn, entry):
            _take_back(turn, entry, f"the queue of {node} was lost or replaced", revoke=True)


def node_revoked(turn: Turn, node: str) -> None:
    """The node is out of the fleet: nothing it says counts any more, so nothing waits for it."""
    for entry in turn.ledger.placed(node):
        _take_back(turn, entry, f"{node} was put out of the fleet", revoke=False)


def _take_back(turn: Turn, entry: LedgerTask, reason: str, *, revoke: bool) -> None:
    """Have a task planned again, unless it may have run and may run once only: then nobody can say."""
    if entry.task is not None and entry.task.effect == "at_most_once":
        custody.give_up(turn, entry, f"{reason}; it may have taken effect")
    else:
        custody.give_back(turn, entry, "revoked", reason, revoke=revoke)


def lapse(turn: Turn) -> None:
    """Look for leases that ran out: idempotent tasks are planned anew, the others end as unknown."""
    for task_id in [task_id for task_id, until in turn.memory.leases.items() if turn.is_past(until)]:
        entry = turn.ledger.task(task_id)
        if entry is None or entry.state is not TaskState.PLACED or entry.task is None:
            turn.forget(task_id)
        elif entry.task.effect == "at_most_once":
            custody.give_up(
                turn,
                entry,
                f"{entry.node} was not heard for {turn.limits.lease_s:g} s; it may have taken effect",
            )
        elif task_id not in turn.memory.queue:
            turn.memory.queue.put(task_id, turn.now)


def hear_again(turn: Turn) -> None:
    """Our own link is back: the time in which nobody could be heard counts against no node."""
    memory = turn.memory
    if memory.deaf_since is None:
        return
    deaf_s = turn.now.since(memory.deaf_since)
    memory.deaf_since = None
    memory.leases = {task_id: until.plus(deaf_s) for task_id, until in memory.leases.items()}
    for node in memory.nodes.values():
        node.last_heard = node.last_heard.plus(deaf_s)


def has_lapsed(turn: Turn, task_id: str) -> bool:
    """Decide whether a placed task's lease has run out."""
    return turn.is_past(turn.memory.leases.get(task_id))


def expire(turn: Turn) -> None:
    """End waiting tasks whose own time ran out; a placed one is left to its node while its lease holds."""
    for task_id in [task_id for task_id, at in turn.memory.expiries.items() if turn.is_past(at)]:
        entry = turn.ledger.task(task_id)
        if entry is None or entry.state not in (TaskState.PENDING, TaskState.PLACED):
            turn.forget(task_id)
        elif entry.state is TaskState.PENDING or has_lapsed(turn, task_id):
            custody.expire(turn, entry)
