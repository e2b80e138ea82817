"""Between the ledger's values and SQLite's columns. Owns the encoding; decides nothing."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from cloud_coordinator.ledger.values import DeadLetter, LedgerTask, Moment, Placement, TaskState
from skerry.decision import Decision
from skerry.fence import parse_fence
from skerry.messages import Lane, Outcome
from skerry.task import TaskSpec

T = TypeVar("T")


def to_json(value: Any) -> str | None:
    """Return value as JSON text, None as None."""
    return None if value is None else msgspec.json.encode(value).decode()


def from_json(text: str | None, kind: type[T]) -> T | None:
    """Return the value in JSON text, None from None."""
    return None if text is None else msgspec.json.decode(text, type=kind)


def task_to_row(task: LedgerTask) -> dict[str, Any]:
    """Return the columns of a task."""
    return {
        "task_id": task.task_id,
        "home_node": task.home_node,
        "kind": task.kind,
        "state": task.state.value,
        "priority": task.task.priority if task.task else 0,
        "received": to_json(task.received),
        "task": to_json(task.task),
        "fence": str(task.fence) if task.fence else None,
        "node": task.node,
        "command_seq": task.command_seq,
        "placed": to_json(task.placed),
        "placements": task.placements,
        "excluded": to_json(task.excluded),
        "waits": task.waits,
        "decision": to_json(task.decision),
        "outcome": to_json(task.outcome),
        "attempts": task.attempts,
        "ended_wall_s": task.ended_wall_s,
    }


def task_from_row(row: dict[str, Any]) -> LedgerTask:
    """Return the task in these columns."""
    received = from_json(row["received"], Moment)
    assert received is not None  # the column is NOT NULL
    return LedgerTask(
        task_id=row["task_id"],
        home_node=row["home_node"],
        kind=row["kind"],
        state=TaskState(row["state"]),
        received=received,
        task=from_json(row["task"], TaskSpec),
        fence=parse_fence(row["fence"]) if row["fence"] else None,
        node=row["node"],
        command_seq=row["command_seq"],
        placed=from_json(row["placed"], Moment),
        placements=row["placements"],
        excluded=from_json(row["excluded"], dict[str, str]) or {},
        waits=row["waits"],
        decision=from_json(row["decision"], Decision),
        outcome=from_json(row["outcome"], Outcome),
        attempts=row["attempts"],
        ended_wall_s=row["ended_wall_s"],
    )


def placement_to_row(placement: Placement) -> dict[str, Any]:
    """Return the columns of a placement."""
    return {
        "task_id": placement.task_id,
        "fence": str(placement.fence),
        "node": placement.node,
        "placed_wall_s": placement.placed_wall_s,
        "decision": to_json(placement.decision),
        "ended": placement.ended,
        "reason": placement.reason,
        "ended_wall_s": placement.ended_wall_s,
    }


def placement_from_row(row: dict[str, Any]) -> Placement:
    """Return the placement in these columns."""
    fields = {
        name: row[name] for name in ("task_id", "node", "placed_wall_s", "ended", "reason", "ended_wall_s")
    }
    decision = from_json(row["decision"], Decision)
    return Placement(fence=parse_fence(row["fence"]), decision=decision, **fields)


def letter_from_row(row: dict[str, Any]) -> DeadLetter:
    """Return the dead letter in these columns."""
    return DeadLetter(**{**row, "lane": Lane(row["lane"])})
