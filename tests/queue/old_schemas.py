"""Databases as earlier versions left them, written with their own schema files and plain SQL."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import apsw
import msgspec

from skerry.database import upgrade
from skerry.ids import TaskId
from task_queue.migrations import schema

#: Versions before stories: (seq, state, columns beside those that every row has).
TASKS: tuple[tuple[int, str, dict[str, Any]], ...] = (
    (1, "ready", {}),
    (2, "delayed", {"due_on_s": 500.0, "attempt": 1, "tries": 1, "fence": "-/1", "waiting_for": "exit 1"}),
    (3, "running", {"attempt": 1, "tries": 1, "fence": "-/1", "queue_key": "default\nk"}),
    (4, "blocked", {"queue_key": "default\nk"}),
    (5, "handed_over", {"is_offered": 1, "placed_on": "n2", "known": "1.7/0", "expires_on_s": 9e5}),
    (6, "done", {"attempt": 1, "tries": 1, "fence": "-/1", "request_key": "default\norder-6"}),
    (7, "dead", {"attempt": 2, "tries": 2, "fence": "-/2"}),
    (8, "dead", {}),
    (9, "expired", {"attempt": 1, "tries": 1, "fence": "-/1"}),
    (10, "cancelled", {"attempt": 1, "tries": 1, "fence": "-/1"}),
    (11, "cancelled", {"placement": "1.9/0", "known": "1.9/0", "waiting_for": "the placement was revoked"}),
    (12, "unknown", {"attempt": 1, "tries": 1, "fence": "-/1", "is_once": 1}),
    (13, "done", {"is_offered": 1, "known": "1.8/0", "fence": "1.8/3", "attempt": 3}),
    (14, "done", {"attempt": 1, "tries": 1, "fence": "-/1"}),
)
#: (seq, number, how it ended, error, runtime)
ATTEMPTS = (
    (2, 1, "failed", "exit 1", 0.5),
    (3, 1, "", "", 0.0),
    (6, 1, "succeeded", "", 2.5),
    (7, 1, "interrupted", "the agent stopped while it ran", 0.0),
    (7, 2, "failed", "exit 2", 0.25),
    (9, 1, "expired", "too late", 0.0),
    (10, 1, "failed", "exit 1", 0.5),  # it waited for its second try when it was cancelled
    (12, 1, "interrupted", "cut off", 0.0),
    (14, 1, "succeeded", "", 1.0),
)
OUTCOMES: dict[int, Any] = {
    6: {"status": "succeeded", "result": {"n": 1}, "device": "npu0", "runtime_s": 2.5},
    7: {"status": "failed", "error": "exit 2", "runtime_s": 0.25},
    8: {"status": "dead", "error": "no device here"},
    9: {"status": "expired", "error": "too late"},
    10: {"status": "cancelled", "error": "cancelled"},
    12: {"status": "unknown", "error": "cut off"},
    13: {"status": "succeeded", "result": 13},
}
#: Task → the reason of the latest decision that led to no attempt.
DECISIONS = {5: "n2 has room", 8: "no device here", 13: "n2 has room"}
#: Task → the events that its story tells after the upgrade, after `accepted`.
STORIES = {
    1: [],
    2: ["started", "retried"],
    3: ["started"],
    4: [],
    5: ["noted"],
    6: ["started", "succeeded"],
    7: ["started", "interrupted", "started", "exhausted"],
    8: ["noted", "exhausted"],
    9: ["started", "expired"],
    10: ["started", "retried", "cancelled"],
    11: ["dropped"],
    12: ["started", "interrupted"],
    13: ["noted", "returned"],
    14: ["started", "succeeded"],
}
ACCEPTED_WALL_S, STARTED_WALL_S, ENDED_WALL_S, ENDED_ON_S = 1.7e9, 1.7e9 + 10, 1.7e9 + 20, 120.0
FINAL_STATES = ("done", "dead", "expired", "cancelled", "unknown")
OUTBOX = (("control", 1, "task.withdrawn"), ("live", 3, "task.offered"), ("backlog", 9, "task.ended"))


def task_id_of(seq: int) -> TaskId:
    """Return the id of a row: growing with its number."""
    return TaskId(f"{0x018BCFE56800:012x}{seq:020x}")


def body_of(seq: int) -> bytes:
    """Return a task as the first versions stored it: with every default."""
    return msgspec.json.encode(
        {
            "spec": {
                "executor": "command",
                "argv": ["echo", str(seq)],
                "env": {},
                "stdin": "",
                "privileged": False,
            },
            "kind": "greet",
            "tenant": "default",
            "idempotency_key": "order-6" if seq == 6 else None,
            "priority": 4,
            "retries": 2,
            "max_runtime_s": 300.0,
            "ordering_key": "k" if seq in (3, 4) else None,
        }
    )


def write_old(path: Path, version: int) -> None:
    """Write a populated database of this version; those with stories have come from the one before."""
    db = apsw.Connection(str(path))
    for setting in ("auto_vacuum = INCREMENTAL", "journal_mode = WAL", "foreign_keys = ON"):
        db.execute(f"PRAGMA {setting}").fetchall()
    upgrade(db, schema()[: min(version, 2)])
    with db:
        _fill(db)
    upgrade(db, schema()[:version])
    db.close()


def _fill(db: apsw.Connection) -> None:
    book = {
        "seq": len(TASKS),
        "commits": 77,
        "powered_s": 200.0,
        "boot_id": "boot-1",
        "uptime_s": 100.0,
        "by_state": {state: sum(each == state for _, each, _ in TASKS) for state in {s for _, s, _ in TASKS}},
        "outbox": {lane: 1 for lane, _, _ in OUTBOX},
        "outbox_seq": {lane: seq for lane, seq, _ in OUTBOX},
        "trimmed": {"backlog": 8},
    }
    db.execute("INSERT INTO store VALUES (1, 'epoch-1', 5, ?)", (msgspec.json.encode(book).decode(),))
    for seq, state, more in TASKS:
        _insert(db, "task", _task(seq, state, more))
    for seq, number, ended, error, runtime_s in ATTEMPTS:
        decision = {
            "task_id": task_id_of(seq),
            "decided_by": "baseline:fifo",
            "node": "n1",
            "device": "npu0",
            "reason": "free",
            "candidates": [
                {"node": "n1", "device": "npu0", "device_class": "npu", "score": 9.5, "expected_s": 0.25},
                {"node": "n2", "device": "cpu0", "verdicts": [{"rule": "r", "allowed": False}]},
            ],
        }
        values = (
            seq,
            number,
            f"-/{number}",
            "npu0",
            STARTED_WALL_S + number,
            ended,
            error,
            runtime_s,
            _json(decision),
        )
        db.execute("INSERT INTO attempt VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", values)
    for lane, seq, kind in OUTBOX:
        body = _json({"kind": kind, "task_id": task_id_of(seq)})
        db.execute("INSERT INTO outbox VALUES (?, ?, ?, ?, '', ?)", (lane, seq, kind, task_id_of(seq), body))
    db.execute("INSERT INTO inbox VALUES ('coordinator', 'e', 'live', 41)")
    db.execute("INSERT INTO meta VALUES ('term', x'37')")


def _task(seq: int, state: str, more: dict[str, Any]) -> dict[str, Any]:
    is_final = state in FINAL_STATES
    outcome = OUTCOMES.get(seq)
    reason = DECISIONS.get(seq)
    decision = (
        None if reason is None else {"task_id": "", "decided_by": "coordinator:greedy", "reason": reason}
    )
    row = {
        "seq": seq,
        "task_id": bytes.fromhex(task_id_of(seq)),
        "state": state,
        "priority": 4,
        "turn": seq,
        "kind": "greet",
        "is_once": 0,
        "retries": 2,
        "body": body_of(seq),
        "accepted_wall_s": ACCEPTED_WALL_S,
        "attempt": 0,
        "tries": 0,
        "is_offered": 0,
        "home_node": "",
        "placed_on": "",
        "waiting_for": "",
        "ended_on_s": ENDED_ON_S if is_final else None,
        "ended_wall_s": ENDED_WALL_S if is_final else None,
        "outcome": None if outcome is None else _json(outcome),
        "decision": None if decision is None else _json(decision),
    }
    if seq == 14:
        row["outcome"] = b"{"  # it cannot be read any more
    return row | more


def _insert(db: apsw.Connection, table: str, row: dict[str, Any]) -> None:
    names = ", ".join(row)
    db.execute(f"INSERT INTO {table} ({names}) VALUES ({', '.join(f':{name}' for name in row)})", row)


def _json(value: Any) -> bytes:
    return msgspec.json.encode(value)
