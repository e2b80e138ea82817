"""A task's story as a document: what happened, in order. Pure."""

from __future__ import annotations

from typing import Any

from skerry.queue_documents import StoryEvent, StoryView
from task_queue.store import TaskRecord


def story_of(record: TaskRecord) -> StoryView:
    """Return the story that a task's own record tells: accepted, its attempts, its end."""
    events = [StoryEvent(what="accepted", at_wall_s=record.accepted_wall_s, detail=_as_given(record))]
    for attempt in record.attempts:
        detail: dict[str, Any] = {"fence": str(attempt.fence), "device": attempt.device}
        if attempt.decision is not None:
            detail["decided_by"] = attempt.decision.decided_by
        events.append(StoryEvent(what="started", at_wall_s=attempt.started_wall_s, detail=detail))
        if attempt.ended:
            ended = {"fence": str(attempt.fence), "runtime_s": attempt.runtime_s}
            ended |= {"error": attempt.error} if attempt.error else {}
            at = attempt.started_wall_s + attempt.runtime_s
            events.append(StoryEvent(what=attempt.ended, at_wall_s=at, detail=ended))
    if record.ended_wall_s is not None:
        outcome = record.outcome
        detail = {"error": outcome.error} if outcome is not None and outcome.error else {}
        events.append(StoryEvent(what=record.state.value, at_wall_s=record.ended_wall_s, detail=detail))
    return StoryView(
        task_id=record.task_id, state=record.state.value, kind=record.task.kind, events=tuple(events)
    )


def _as_given(record: TaskRecord) -> dict[str, Any]:
    task = record.task
    detail: dict[str, Any] = {"priority": task.priority}
    if task.idempotency_key is not None:
        detail["idempotency_key"] = task.idempotency_key
    if record.home_node:
        detail["home_node"] = record.home_node
    return detail
