"""A task's story: events as they are stored and as people read them, and what follows from them.

Attempts, outcome and decisions are kept nowhere else. Pure; knows no tables.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from skerry.decision import Decision
from skerry.decoding import MALFORMED
from skerry.errors import SpecError
from skerry.fence import Fence, parse_fence
from skerry.ids import TaskId
from skerry.messages import Outcome
from task_queue.store import Attempt, StoryEvent
from task_queue.task import TRANSITIONS, Event, State

#: What is said of a row whose values cannot be read.
DAMAGED = "what the queue's database holds of it is damaged and cannot be read"
#: The two words of a story that are no transition: its beginning, and word about a task that is elsewhere.
ACCEPTED, NOTED = "accepted", "noted"
#: Events that a story keeps, the newest; and how many more gather before the older ones are cut off.
STORY_LIMIT, STORY_SLICE = 200, 50

#: Event → how an attempt is called to end that it met.
_ATTEMPT_END = {event.value: event.value for state, event in TRANSITIONS if state is State.RUNNING} | {
    Event.RETRIED: "failed",
    Event.EXHAUSTED: "failed",
    Event.DROPPED: "cancelled",
    Event.RETURNED: "cancelled",
}


class EventRow(msgspec.Struct, frozen=True):
    """One event as stored: a column a field."""

    id: int
    prev: int | None
    at_wall_s: float
    on_s: float | None
    what: str
    detail: bytes | None = None  #: a Detail as JSON


class Detail(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What an event has beside its time; see StoryEvent. A decision leaves out the task, of which it is."""

    fence: str = ""
    device: str = ""  #: where not the decision's
    node: str = ""
    decision: Decision | None = None
    outcome: Outcome | None = None
    error: str = ""
    runtime_s: float = 0.0


def packed_detail(detail: Detail | None) -> bytes | None:
    """Return a detail as a column holds it."""
    return None if detail is None else msgspec.json.encode(detail)


def decided(decision: Decision | None) -> Decision | None:
    """Return a decision as a detail keeps it."""
    return None if decision is None else msgspec.structs.replace(decision, task_id="")


def event_of(row: EventRow, task_id: TaskId) -> StoryEvent:
    """Return an event as people read it; of one that cannot be read any more, that it was there."""
    head = StoryEvent(what=row.what, at_wall_s=row.at_wall_s, on_s=row.on_s)
    if row.detail is None:
        return head
    try:
        detail = msgspec.json.decode(row.detail, type=Detail)
        fence = parse_fence(detail.fence) if detail.fence else None
    except (*MALFORMED, SpecError):
        return msgspec.structs.replace(head, outcome=Outcome(status="unknown", error=DAMAGED), error=DAMAGED)
    decision = detail.decision
    return msgspec.structs.replace(
        head,
        fence=fence,
        device=detail.device or (decision.device or "" if decision is not None else ""),
        node=detail.node,
        decision=None if decision is None else msgspec.structs.replace(decision, task_id=task_id),
        outcome=detail.outcome,
        error=detail.error,
        runtime_s=detail.runtime_s,
    )


def attempts_of(story: Iterable[StoryEvent]) -> tuple[Attempt, ...]:
    """Return the attempts that a story tells of, in their order."""
    attempts: list[Attempt] = []
    for event in story:
        if event.what == Event.STARTED:
            attempts.append(
                Attempt(
                    fence=event.fence or Fence(),
                    device=event.device,
                    started_wall_s=event.at_wall_s,
                    decision=event.decision,
                )
            )
        elif attempts and not attempts[-1].ended and event.what in _ATTEMPT_END:
            attempts[-1] = _closed(attempts[-1], event)
    return tuple(attempts)


def _closed(attempt: Attempt, event: StoryEvent) -> Attempt:
    outcome = event.outcome
    return msgspec.structs.replace(
        attempt,
        ended=_ATTEMPT_END[event.what],
        error=event.error if outcome is None else outcome.error,
        runtime_s=event.runtime_s if outcome is None else outcome.runtime_s,
    )


def latest_decision(story: Sequence[StoryEvent]) -> Decision | None:
    """Return the latest decision that led to no attempt (a hand-over, a placement, parking)."""
    made = (event.decision for event in reversed(story) if event.what != Event.STARTED)
    return next((decision for decision in made if decision is not None), None)


def was_dropped(newest: EventRow | None) -> bool:
    """Decide whether a cancelled task was given up with its placement, not at the submitter's wish."""
    return newest is not None and newest.what == Event.DROPPED
