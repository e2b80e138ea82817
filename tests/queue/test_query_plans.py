"""No statement on the path of a commit looks at the backlog: each is answered from an index, in its order."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from task_queue import sqlite_file
from task_queue.limits import MIB, Limits
from task_queue.queries import statements

#: Statement → the index that must answer it. For people and checks only, so absent: list_tasks, count_*.
PLANS = {
    "task_by_id": "sqlite_autoindex_task_1",
    "task_by_request": "task_request",
    "ready_of": "task_ready",
    "first_open": "task_key",
    "ready": "task_ready",
    "due": "task_due",
    "expiring": "task_expiring",
    "lapsed": "task_lapsing",
    "overdue": "task_overdue",
    "ended_before": "task_ended",
    "running": "task_running",
    "held_placements": "task_placed",
    "delete_coalesced": "outbox_coalesce",
    "newest_coalesced": "outbox_coalesce",
    "evict_slice": "outbox_telemetry",
    "evict_outbox": "outbox_telemetry",
    "next_times": "task_due",
}
BY_PRIMARY_KEY = [
    "claimed",
    "body",
    "delete_body",
    "event",
    "replace_note",
    "story",
    "delete_story",
    "remembered",
    "newest_remembered",
    "forget",
    "forget_before",
    "outbox",
    "trim_outbox",
    "inbox_mark",
    "meta",
]

Plan = Callable[[str], list[str]]


@pytest.fixture
def plan(tmp_path: Path) -> Iterator[Plan]:
    db = sqlite_file.open_writer(tmp_path / "queue.db", Limits(max_bytes=MIB))

    def explain(name: str) -> list[str]:
        sql = statements()[name]
        values = dict.fromkeys(re.findall(r":(\w+)", sql))  # a plan does not depend on them
        return [str(row[3]) for row in db.execute(f"EXPLAIN QUERY PLAN {sql}", values)]

    yield explain
    db.close()


@pytest.mark.parametrize(("name", "index"), PLANS.items())
def test_a_selection_is_answered_from_its_index(plan: Plan, name: str, index: str) -> None:
    steps = plan(name)

    assert any(f"INDEX {index}" in step for step in steps), steps
    assert not any("TEMP B-TREE" in step for step in steps), steps
    bounded = (
        "INDEX",
        "SCALAR",
        "SCAN CONSTANT",
        "CO-ROUTINE",
        "SCAN (subquery",
        "UNION ALL",
        "QUERY",
        "SUBQUERY",
    )
    assert all(any(word in step for word in bounded) for step in steps), steps


@pytest.mark.parametrize("name", BY_PRIMARY_KEY)
def test_a_row_is_found_by_its_primary_key(plan: Plan, name: str) -> None:
    steps = plan(name)

    assert any("USING PRIMARY KEY" in step or "INTEGER PRIMARY KEY" in step for step in steps), steps
    assert not any(step in ("SCAN task", "SCAN outbox", "SCAN attempt") for step in steps), steps


@pytest.mark.parametrize("name", [name for name in statements() if name.startswith("on_")])
def test_a_transition_touches_one_row(plan: Plan, name: str) -> None:
    steps = plan(name)

    assert steps == ["SEARCH task USING INTEGER PRIMARY KEY (rowid=?)"]
