"""The schema's steps with their parts that are not SQL.

A part meets the tables of its own version for ever, so it uses none of the code that works on today's.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import apsw
import msgspec

from skerry.database import Schema, Step
from skerry.decoding import MALFORMED
from skerry.errors import StoreDamaged
from skerry.sql import load_schema
from task_queue.queries import PACKAGE

#: A task's state → how its last attempt may have been called to end when both ended at once.
_ENDS_WITH = {
    "done": ("succeeded",),
    "dead": ("failed", "interrupted"),
    "expired": ("expired",),
    "cancelled": ("cancelled",),
    "unknown": ("interrupted",),
}
#: How an attempt's end was called → the event that it was when the task went on, and when it ended with it.
_WENT_ON = {"failed": "retried", "cancelled": "dropped"}
_ENDED = {"failed": "exhausted"}
#: A task's state → the event that ended it outside an attempt.
_EVENT_OF_STATE = {"done": "returned", "dead": "exhausted", "unknown": "expired"}

#: at_wall_s, on_s, what, detail
_Event = tuple[float, float | None, str, bytes | None]


def schema() -> Schema:
    """Return the steps of the queue's schema; step n brings a database to version n."""
    after = {3: _carry_stories}
    return [
        Step(script=script, after=after.get(version))
        for version, script in enumerate(load_schema(PACKAGE), start=1)
    ]


def _carry_stories(db: apsw.Connection) -> None:
    """Make the stories of version 3 from what version 2 kept: attempts, outcome and latest decision.

    Raises StoreDamaged when the store's own row cannot be read: the file is then brought over row by row.
    """
    if db.execute("SELECT 1 FROM store WHERE NOT json_valid(book)").fetchall():
        raise StoreDamaged("the store's own row cannot be read")
    last = 0
    for task in db.execute(_TASKS):
        story = list(_story(db, _OldTask(*task)))
        ids = range(last + 1, last + 1 + len(story))
        for number, event in zip(ids, story, strict=True):
            prev = None if number == ids[0] else number - 1
            db.execute("INSERT INTO event VALUES (?, ?, ?, ?, ?, ?)", (number, prev, *event))
        if story:
            last = ids[-1]
            db.execute(
                "UPDATE task SET last_event = ?, events = ? WHERE seq = ?", (last, len(story), task[0])
            )
    db.execute("UPDATE store SET book = json_set(book, '$.event', ?)", (last,))
    db.execute("DROP TABLE attempt; DROP TABLE old_task")


_TASKS = """
SELECT seq, state, is_offered, accepted_wall_s, ended_on_s, ended_wall_s, outcome, decision FROM old_task
WHERE outcome IS NOT NULL OR decision IS NOT NULL OR ended_on_s IS NOT NULL OR attempt > 0 ORDER BY seq
"""
_ATTEMPTS = """
SELECT fence, device, started_wall_s, ended, error, runtime_s, decision FROM attempt
WHERE seq = ? ORDER BY number
"""


class _OldTask(NamedTuple):
    seq: int
    state: str
    is_offered: int
    accepted_wall_s: float
    ended_on_s: float | None
    ended_wall_s: float | None
    outcome: bytes | None
    decision: bytes | None


def _story(db: apsw.Connection, task: _OldTask) -> Iterator[_Event]:
    """Yield a task's events, the oldest first. A time that was not kept is that of the event before."""
    at_wall_s, ended, error, runtime_s = task.accepted_wall_s, "", "", 0.0
    for fence, device, started_wall_s, *its_end, decision in db.execute(_ATTEMPTS, (task.seq,)):
        if ended:
            yield _went_on(at_wall_s, ended, error, runtime_s)
        at_wall_s = started_wall_s
        ended, error, runtime_s = its_end
        yield at_wall_s, None, "started", _json(fence=fence, device=device, decision=_kept(decision))
    ends_with = ended in _ENDS_WITH.get(task.state, ()) and error == _error(task.outcome)
    if ended and not ends_with:
        yield _went_on(at_wall_s, ended, error, runtime_s)
    if task.decision is not None:
        yield at_wall_s, None, "noted", _json(decision=_kept(task.decision))
    if task.ended_on_s is not None:
        yield _end(task, ended if ends_with else "", at_wall_s)


def _went_on(at_wall_s: float, ended: str, error: str, runtime_s: float) -> _Event:
    return at_wall_s, None, _WENT_ON.get(ended, ended), _json(error=error, runtime_s=runtime_s)


def _end(task: _OldTask, ended: str, at_wall_s: float) -> _Event:
    what = _ENDED.get(ended, ended) or _EVENT_OF_STATE.get(task.state, task.state)
    if task.state == "cancelled" and task.outcome is None:
        what = "dropped"
    detail = None if task.outcome is None else _json(outcome=msgspec.Raw(task.outcome))
    return task.ended_wall_s or at_wall_s, task.ended_on_s, what, detail


def _error(outcome: bytes | None) -> str:
    value = _value(outcome)
    return str(value.get("error", "")) if isinstance(value, dict) else ""


def _kept(decision: bytes | None) -> dict[str, Any] | None:
    """Return a decision in the form in which version 3 keeps it."""
    value = _value(decision)
    if not isinstance(value, dict):
        return None
    kept = {_KEPT.get(str(name), str(name)): each for name, each in value.items() if name != "task_id"}
    candidates = value.get("candidates")
    kept["candidates"] = [
        [
            one.get("device", ""),
            one.get("device_class", "cpu"),
            one.get("score"),
            one.get("expected_s"),
            one.get("verdicts", []),
            "" if one.get("node") == value.get("node") else one.get("node", ""),
        ]
        for one in (candidates if isinstance(candidates, list) else ())
        if isinstance(one, dict)
    ]
    return kept


_KEPT = {"decided_by": "by", "gate_state": "gate", "gap_to_bound": "gap"}


def _value(body: bytes | None) -> Any:
    try:
        return None if body is None else msgspec.json.decode(body)
    except MALFORMED:
        return None


def _json(**values: Any) -> bytes:
    return msgspec.json.encode(
        {name: value for name, value in values.items() if value not in (None, "", 0.0)}
    )
