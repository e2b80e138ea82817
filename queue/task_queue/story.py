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
from task_queue.decisions import KeptDecision, NamedDecision, told
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
    """What an event has beside its time; see StoryEvent."""

    fence: str = ""
    device: str = ""  #: where not the decision's
    node: str = ""
    decision: KeptDecision | None = msgspec.field(default=None, name="decided")
    named: NamedDecision | None = msgspec.field(default=None, name="decision")  #: what earlier versions wrote
    outcome: Outcome | None = None
    #: The outcome's node, device, its class and who decided are the start's.
    is_as_started: bool = msgspec.field(default=False, name="same")
    error: str = ""
    runtime_s: float = 0.0

    @property
    def kept(self) -> KeptDecision | NamedDecision | None:
        """The decision, in whichever form it was written."""
        return self.decision or self.named


def packed_detail(detail: Detail | None) -> bytes | None:
    """Return a detail as a column holds it."""
    return None if detail is None else msgspec.json.encode(detail)


def ending(outcome: Outcome, start: EventRow | None) -> Detail:
    """Return the detail of an end; what the attempt's start has said already is left out."""
    place = _place_in(outcome)
    if start is None or start.what != Event.STARTED or not any(place) or _place_of(start) != place:
        return Detail(outcome=outcome)
    return Detail(outcome=msgspec.structs.replace(outcome, **_NOWHERE), is_as_started=True)


_NOWHERE = {"node": "", "device": "", "device_class": "", "decided_by": ""}


def _place_in(outcome: Outcome) -> tuple[str, ...]:
    return outcome.node, outcome.device, outcome.device_class, outcome.decided_by


def _place_of(start: EventRow) -> tuple[str, ...] | None:
    """Return where a decision has sent an attempt, as its outcome says it; None without one."""
    detail = _detail_of(start)
    decision = None if detail is None else detail.kept
    if decision is None:
        return None
    chosen = (
        one.device_class for one in decision.candidates if one.device == decision.device and not one.node
    )
    return decision.node or "", decision.device or "", next(chosen, ""), decision.by


def _detail_of(row: EventRow) -> Detail | None:
    """Return a detail, None when there is none or it cannot be read any more."""
    try:
        return None if row.detail is None else msgspec.json.decode(row.detail, type=Detail)
    except MALFORMED:
        return None


def events_of(rows: Iterable[EventRow], task_id: TaskId) -> list[StoryEvent]:
    """Return events as people read them, the oldest first; of one that cannot be read, that it was there."""
    events: list[StoryEvent] = []
    start: EventRow | None = None
    for row in rows:
        start = row if row.what == Event.STARTED else start
        events.append(_event_of(row, task_id, start))
    return events


def _event_of(row: EventRow, task_id: TaskId, start: EventRow | None) -> StoryEvent:
    head = StoryEvent(what=row.what, at_wall_s=row.at_wall_s, on_s=row.on_s)
    if row.detail is None:
        return head
    detail = _detail_of(row)
    if detail is None:
        return msgspec.structs.replace(head, outcome=Outcome(status="unknown", error=DAMAGED), error=DAMAGED)
    decision = detail.kept
    return msgspec.structs.replace(
        head,
        fence=_fence_of(detail.fence),
        device=detail.device or (decision.device or "" if decision is not None else ""),
        node=detail.node,
        decision=told(decision, task_id),
        outcome=_outcome_of(detail, start),
        error=detail.error,
        runtime_s=detail.runtime_s,
    )


def _fence_of(text: str) -> Fence | None:
    try:
        return parse_fence(text) if text else None
    except SpecError:
        return None


def _outcome_of(detail: Detail, start: EventRow | None) -> Outcome | None:
    place = _place_of(start) if detail.is_as_started and start is not None else None
    if detail.outcome is None or place is None:
        return detail.outcome
    return msgspec.structs.replace(detail.outcome, **dict(zip(_NOWHERE, place, strict=True)))


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
