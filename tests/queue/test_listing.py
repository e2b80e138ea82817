"""Lists of tasks cost what they find where an index answers; other lists let others at the connection."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from skerry.testing import a_task
from task_queue import listing, sqlite_file
from task_queue.limits import MIB, Limits
from task_queue.operations import Enqueue, Park
from task_queue.store import TaskFilter
from task_queue.task import State
from task_queue.testing import QueueDriver, memory_opener, sqlite_opener

ANSWERED: list[tuple[dict[str, Any], str]] = [
    ({"idempotency_key": "k"}, "task_request"),
    ({"states": (State.DEAD,)}, "task_ended"),
    ({"states": (State.DONE, State.EXPIRED)}, "task_ended"),
    ({"states": (State.RUNNING,)}, "task_running"),
    ({"states": (State.DELAYED,)}, "task_due"),
    ({"ordering_key": "k", "states": (State.BLOCKED, State.READY)}, "task_key"),
]


def plan_of(folder: Path, task_filter: TaskFilter) -> list[str]:
    db = sqlite_file.open_writer(folder / "queue.db", Limits(max_bytes=MIB))
    sql, values = listing.statement(listing.index_for(task_filter)), listing.values_of(task_filter, set())
    plan = [str(row[3]) for row in db.execute(f"EXPLAIN QUERY PLAN {sql}", values)]
    db.close()
    return plan


@pytest.mark.parametrize(("fields", "index"), ANSWERED)
def test_a_filter_is_answered_from_its_index(tmp_path: Path, fields: dict[str, Any], index: str) -> None:
    plan = plan_of(tmp_path, TaskFilter(**fields))

    assert listing.index_for(TaskFilter(**fields)) == index
    assert any(f"USING INDEX {index}" in step for step in plan), plan


WALKS: list[dict[str, Any]] = [
    {},
    {"kind": "a"},
    {"states": (State.READY,)},
    {"states": (State.DEAD, State.READY)},
]


@pytest.mark.parametrize("fields", WALKS, ids=str)
def test_other_filters_walk_back_from_the_newest_by_id(tmp_path: Path, fields: dict[str, Any]) -> None:
    plan = plan_of(tmp_path, TaskFilter(**fields))

    assert listing.index_for(TaskFilter(**fields)) == ""
    assert any("sqlite_autoindex_task_1 (task_id>? AND task_id<?)" in step for step in plan), plan
    assert not any("TEMP B-TREE" in step for step in plan), plan


@pytest.fixture
def both(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[QueueDriver, QueueDriver]]:
    """A store of each kind with the same tasks; a look goes back seven tasks only."""
    monkeypatch.setattr(listing, "STRETCH", 7)
    stores = QueueDriver(sqlite_opener(tmp_path)), QueueDriver(memory_opener())
    for q in stores:
        _fill(q)
    yield stores
    for q in stores:
        q.store.close()


def _fill(q: QueueDriver) -> None:
    tasks = [
        a_task(
            kind=f"k{number % 5}",
            priority=number % 3,
            ordering_key=f"o{number % 4}" if number % 3 == 0 else None,
            idempotency_key=f"i{number}" if number % 2 else None,
            delay_s=50.0 if number % 7 == 0 else None,
        )
        for number in range(60)
    ]
    q.apply(*(Enqueue(task_id=q.ids.next(), task=task) for task in tasks))
    q.apply(*(Park(task_id=task_id, reason="it can never run here") for task_id in q.claim(9)[:5]))


FILTERS: list[dict[str, Any]] = [
    *(fields for fields, _ in ANSWERED),
    {},
    {"kind": "k3"},
    {"kind": "k3", "priority": 1},
    {"states": (State.LEASED,)},
    {"states": (State.READY, State.DEAD), "kind": "k1"},
    {"ordering_key": "o1"},
    {"ordering_key": "o2", "states": (State.READY, State.BLOCKED, State.DELAYED)},
    {"idempotency_key": "i7"},
    {"idempotency_key": "i7", "kind": "other"},
    {"states": (State.DELAYED,), "priority": 2},
    {"states": (State.DEAD,), "kind": "k0"},
]


@pytest.mark.parametrize("fields", FILTERS, ids=str)
@pytest.mark.parametrize("limit", [4, 100])
def test_both_stores_list_the_same_in_pages(
    both: tuple[QueueDriver, QueueDriver], fields: dict[str, Any], limit: int
) -> None:
    found = []
    for q in both:
        order = sorted(record.task_id for record in q.store.find(TaskFilter(limit=1000)))
        numbers: list[int] = []
        before = None
        while page := q.store.find(TaskFilter(limit=limit, before=before, **fields)):
            assert len(page) <= limit
            numbers += [order.index(record.task_id) for record in page]
            before = page[-1].task_id
        found.append(numbers)

    assert found[0] == found[1] == sorted(found[0], reverse=True)


def test_a_long_walk_lets_others_at_the_connection(
    both: tuple[QueueDriver, QueueDriver], monkeypatch: pytest.MonkeyPatch
) -> None:
    q, _ = both
    reads = q.store._reads  # type: ignore[attr-defined]  # the lock is what others wait for
    taken: list[bool] = []
    read = reads._read

    def listen(query: str, /, **values: Any) -> Any:
        other = threading.Thread(target=lambda: taken.append(reads._lock.acquire(timeout=20)))
        other.start()
        other.join()
        reads._lock.release()
        return read(query, **values)

    monkeypatch.setattr(reads, "_read", listen)
    assert q.store.find(TaskFilter(kind="none of them")) == []

    assert len(taken) >= 60 // 7
    assert all(taken)
