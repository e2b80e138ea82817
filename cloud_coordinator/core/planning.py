"""Which waiting tasks are planned when, and what becomes of a plan. Owns the micro-batch.

The plan is made elsewhere, on an immutable snapshot; here the one applier checks it against the fleet as it
is now and writes it, in one transaction with its commands.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from cloud_coordinator.core import custody, leases
from cloud_coordinator.core.actions import MakePlan, Report, Wake
from cloud_coordinator.core.turn import Turn, reservations_of
from cloud_coordinator.ledger.values import LedgerTask, TaskState
from cloud_coordinator.placement.applier import apply_plan
from cloud_coordinator.placement.filters import PASSING
from cloud_coordinator.placement.request import PlacementRequest, Plan, Unplaced
from cloud_coordinator.placement.snapshot import FleetSnapshot, NodeState, take_snapshot
from skerry.decision import Verdict
from skerry.fence import Fence
from skerry.messages import Lane, TaskPlaced
from skerry.task import blobs_of

#: A plan that was not answered for so long is asked for again.
PLAN_TIMEOUT_S = 60.0
#: Waiting tasks looked at in one batch.
LOOK_AT = 2000
#: A node that refused a task is asked again after so long when nobody else takes it, then after twice that.
REFUSAL_COUNTS_S = 300.0
_REFUSAL_COUNTS_MOST_S = 3600.0


def plan_due(turn: Turn) -> None:
    """Ask for a plan of everything that is due, unless one is under way; else say when to look again."""
    memory = turn.memory
    since = memory.planning_since
    if since is not None and turn.now.since(since) < PLAN_TIMEOUT_S:
        return
    wait_s = memory.queue.next_due_s(turn.now)
    if wait_s is None:
        return
    if wait_s > 0:
        turn.act(Wake(wait_s))
        return
    chosen = memory.queue.due(turn.now.plus(turn.limits.batch_ms / 1000), LOOK_AT)
    requests = tuple(filter(None, (_request(turn, task_id) for task_id in chosen)))
    for request in requests:  # whatever becomes of the plan, its tasks are looked at again
        memory.queue.put(request.task_id, turn.now.plus(turn.limits.retry_s))
    if requests:
        memory.planning_since = turn.now
        turn.act(MakePlan(requests, _snapshot(turn, requests)))


def take_plan(turn: Turn, plan: Plan) -> None:
    """Apply what still holds; plan the rest again, sooner or later."""
    turn.memory.planning_since = None
    entries = {planned.request.task_id: _open(turn, planned.request.task_id) for planned in plan.placements}
    still = tuple(
        planned
        for planned in plan.placements
        if (entry := entries[planned.request.task_id]) is not None and planned.node not in entry.excluded
    )
    _apply(turn, msgspec.structs.replace(plan, placements=still), entries)
    for unplaced in plan.unplaced:
        _wait(turn, unplaced)
    for task_id in plan.deferred:
        if task_id in turn.memory.queue:
            turn.memory.queue.put(task_id, turn.now)


def content_stored(turn: Turn, name: str) -> None:
    """Content has come: what nodes refused for want of it may be asked of them again."""
    for task_id in turn.memory.queue.ids()[:LOOK_AT]:
        entry = turn.ledger.task(task_id)
        if entry is not None and entry.excluded and entry.task is not None and name in blobs_of(entry.task):
            _forgive(turn, entry)


def plan_failed(turn: Turn, reason: str) -> None:
    """Plan again after the retry time: a planner that fails must not stop the coordinator, nor spin."""
    turn.memory.planning_since = None
    turn.count("plans_failed")
    turn.act(Report("error", f"planning failed: {reason}"))
    for task_id in turn.memory.queue.due(turn.now, LOOK_AT):
        turn.memory.queue.put(task_id, turn.now.plus(turn.limits.retry_s))


def _apply(turn: Turn, plan: Plan, entries: Mapping[str, LedgerTask | None]) -> None:
    applied = apply_plan(
        plan,
        _snapshot(turn, tuple(planned.request for planned in plan.placements)),
        turn.placement,
        guard=turn.guard,
        term=turn.term,
        issued={task_id: entry.fence for task_id, entry in entries.items() if entry and entry.fence},
    )
    for placement in applied.placements:
        entry = entries[placement.task_id]
        assert entry is not None  # only open tasks were handed to the applier
        custody.place(turn, entry, placement)
    for stale in applied.stale:
        turn.count("plans_stale")
        if stale.request.task_id in turn.memory.queue:
            turn.memory.queue.put(stale.request.task_id, turn.now.plus(turn.limits.retry_s))


def _open(turn: Turn, task_id: str) -> LedgerTask | None:
    """The task if it wants a place (still); else it leaves the queue."""
    entry = turn.ledger.task(task_id)
    if entry is not None and entry.task is not None:
        if entry.state is TaskState.PENDING:
            return entry
        if entry.state is TaskState.PLACED and leases.has_lapsed(turn, task_id):
            return entry
    turn.memory.queue.drop(task_id)
    return None


def _request(turn: Turn, task_id: str) -> PlacementRequest | None:
    entry = _open(turn, task_id)
    if entry is None or entry.task is None:
        return None
    home = turn.memory.nodes.get(entry.home_node)
    excluded = {**entry.excluded, entry.home_node: "it handed the task over"}
    if entry.state is TaskState.PLACED:
        excluded[entry.node] = "its lease on the task ran out"
    return PlacementRequest(
        task_id=task_id,
        task=entry.task,
        home_node=entry.home_node,
        home_region=home.record.region if home else "",
        home_site=home.record.site if home else "",
        excluded=excluded,
    )


def _snapshot(turn: Turn, requests: tuple[PlacementRequest, ...]) -> FleetSnapshot:
    """The fleet without the room of what is being placed anew; nodes put out of the fleet are not in it."""
    nodes = [
        NodeState(
            record=node.record,
            device_load=node.state.device_load if node.state else {},
            holds=frozenset(node.state.holds) if node.state else frozenset(),
        )
        for node in turn.memory.nodes.values()
        if node.record.public_key
    ]
    moving = frozenset(request.task_id for request in requests)
    return take_snapshot(
        nodes, reservations_of(turn.memory.nodes, leaving_out=moving), revision=turn.memory.revision
    )


def _wait(turn: Turn, unplaced: Unplaced) -> None:
    """Nobody can take it now: try again later, and tell its home why, once and when that changes."""
    task_id = unplaced.request.task_id
    entry = _open(turn, task_id)
    if entry is None:
        return
    turn.memory.queue.put(task_id, turn.now.plus(turn.limits.retry_s))
    if entry.excluded and _has_waited_long(turn, entry):
        _forgive(turn, entry)
        return
    if unplaced.can_wait:
        turn.memory.crowded[task_id] = None
    standing = _standing(unplaced.reasons)
    if entry.state is TaskState.PLACED or turn.memory.told.get(task_id) == standing:
        return
    turn.memory.told[task_id] = standing
    turn.ledger.put_task(msgspec.structs.replace(entry, waits=unplaced.decision.reason[:1000]))
    notice = TaskPlaced(task_id=task_id, fence=Fence(), node="", decision=unplaced.decision)
    turn.command(entry.home_node, notice, Lane.LIVE)


def _has_waited_long(turn: Turn, entry: LedgerTask) -> bool:
    """Whether refusals are so old that their reasons (a full queue, a lost device) may be over."""
    refused_at = turn.memory.refused_at.setdefault(entry.task_id, turn.now)
    tries = min(max(0, entry.placements - 1), 8)
    return turn.now.since(refused_at) >= min(REFUSAL_COUNTS_S * 2.0**tries, _REFUSAL_COUNTS_MOST_S)


def _forgive(turn: Turn, entry: LedgerTask) -> None:
    turn.memory.refused_at.pop(entry.task_id, None)
    turn.ledger.put_task(msgspec.structs.replace(entry, excluded={}))
    turn.plan_soon(entry.task_id)


def _standing(reasons: Mapping[str, tuple[Verdict, ...]]) -> str:
    """What stands against each node, without what passes by itself: that would change with every report."""
    lasting = {
        node: sorted({v.rule for v in said if not v.allowed and v.rule not in PASSING})
        for node, said in reasons.items()
    }
    return "; ".join(f"{node}: {', '.join(rules) or 'for now'}" for node, rules in sorted(lasting.items()))
