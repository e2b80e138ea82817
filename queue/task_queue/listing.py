"""How a list of tasks is read: which index answers a filter, and how far back one look goes. Pure.

A filter that an index answers costs what it finds. Any other walks back from the newest task, a stretch at a
time: between two stretches whoever waits for the connection gets it.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import msgspec

from task_queue.queries import statements
from task_queue.store import TaskFilter
from task_queue.task import FINAL, OPEN, State

#: Tasks that one look passes over at most.
STRETCH = 20_000
#: Below and above every id.
LOWEST, HIGHEST = b"", b"\xff" * 17

_OPEN_STORED = ", ".join(f"'{state}'" for state in State if state in OPEN - {State.LEASED})
#: Index → what of a filter it answers, in the words of its own condition.
_CONDITIONS = {
    "task_request": "request_key = :request_key",
    "task_key": f"queue_key = :queue_key AND state IN ({_OPEN_STORED})",
    "task_ended": "ended_on_s IS NOT NULL",
    "task_running": "state = 'running'",
    "task_due": "state = 'delayed'",
}
_ONE_STATE = {frozenset({State.RUNNING}): "task_running", frozenset({State.DELAYED}): "task_due"}


def index_for(task_filter: TaskFilter) -> str:
    """Return the index whose rows hold everything that the filter can fit; empty: all tasks may."""
    states = frozenset(task_filter.states)
    if task_filter.idempotency_key is not None:
        return "task_request"
    if task_filter.ordering_key is not None and states and states <= OPEN:
        return "task_key"
    if states and states <= FINAL:
        return "task_ended"
    return _ONE_STATE.get(states, "")


@cache
def statement(index: str) -> str:
    """Return the listing's statement, answered from an index."""
    sql = statements()["list_tasks"]
    if not index:
        return sql
    narrowed = sql.replace("FROM task\n", f"FROM task INDEXED BY {index}\n", 1)
    return narrowed.replace("WHERE ", f"WHERE {_CONDITIONS[index]} AND ", 1)


def values_of(task_filter: TaskFilter, leased: set[int]) -> dict[str, Any]:
    """Return what the statement binds, but for the stretch (:floor) and what is still wanted (:limit)."""
    return {
        "below": HIGHEST if task_filter.before is None else bytes.fromhex(task_filter.before),
        "floor": LOWEST,
        "kind": task_filter.kind,
        "priority": task_filter.priority,
        "queue_key": task_filter.queue_key,
        "request_key": task_filter.request_key,
        "since_s": task_filter.since_s,
        "until_s": task_filter.until_s,
        "states": msgspec.json.encode(task_filter.states).decode() if task_filter.states else None,
        "leased": msgspec.json.encode(list(leased)).decode(),
        "limit": task_filter.limit,
    }
