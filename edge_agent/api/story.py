"""A task's story as a document: what happened, in order. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from skerry.queue_documents import StoryEvent as Event
from skerry.queue_documents import StoryView
from task_queue.store import StoryEvent, TaskRecord


def story_view(record: TaskRecord, story: Sequence[StoryEvent]) -> StoryView:
    """Return the document of a story.  story: its events, the acceptance first."""
    return StoryView(
        task_id=record.task_id,
        state=record.state.value,
        kind=record.task.kind,
        events=tuple(_event(record, event) for event in story),
    )


def _event(record: TaskRecord, event: StoryEvent) -> Event:
    given = _as_given(record) if event.what == "accepted" else {}
    return Event(
        what=event.what,
        at_wall_s=event.at_wall_s,
        on_s=event.on_s,
        detail={**given, **_detail(event)},
    )


def _detail(event: StoryEvent) -> dict[str, Any]:
    """Return what applies to an event, by name; what is empty is left out."""
    told = {
        "fence": None if event.fence is None else str(event.fence),
        "device": event.device,
        "node": event.node,
        "error": event.error,
        "runtime_s": event.runtime_s,
        "decision": None if event.decision is None else msgspec.to_builtins(event.decision),
        "outcome": None if event.outcome is None else msgspec.to_builtins(event.outcome),
    }
    return {name: value for name, value in told.items() if value not in (None, "", 0.0)}


def _as_given(record: TaskRecord) -> dict[str, Any]:
    task = record.task
    told = {
        "priority": task.priority,
        "idempotency_key": task.idempotency_key,
        "ordering_key": task.ordering_key,
        "home_node": record.home_node or None,
    }
    return {name: value for name, value in told.items() if value is not None}
