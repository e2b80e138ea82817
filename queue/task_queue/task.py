"""A queued task's states and the one transition table. Owns what may follow what; knows nothing of storage.

SQL repeats the table as CHECK and `UPDATE … WHERE state IN (…)`, the documents draw it; a test compares them.
"""

from __future__ import annotations

from enum import StrEnum

from skerry.errors import InvalidTransition


class State(StrEnum):
    """Where a task is in its life."""

    DELAYED = "delayed"  #: not due yet (asked for at submission, or waiting to be tried again)
    BLOCKED = "blocked"  #: an older task with its ordering key has not ended
    READY = "ready"  #: may be claimed
    LEASED = "leased"  #: claimed into the scheduling window; in memory only, ready again after a restart
    RUNNING = "running"  #: an attempt has started, durably, under its own fence
    HANDED_OVER = "handed_over"  #: the coordinator has it, or is offered it; the row stays until it is back
    DONE = "done"  #: succeeded, its result committed
    DEAD = "dead"  #: failed for good: parked with its reason, can be replayed
    EXPIRED = "expired"  #: its time ran out before it succeeded
    CANCELLED = "cancelled"  #: ended at the submitter's wish, or given up with its placement
    UNKNOWN = (
        "unknown"  #: interrupted (at most once), or no word of its end: it may or may not have taken effect
    )


class Event(StrEnum):
    """What happens to a task."""

    DUE = "due"
    UNBLOCKED = "unblocked"
    CLAIMED = "claimed"
    RELEASED = "released"
    STARTED = "started"
    SUCCEEDED = "succeeded"
    RETRIED = "retried"
    EXHAUSTED = "exhausted"
    INTERRUPTED = "interrupted"
    HANDED_OVER = "handed_over"
    RETURNED = "returned"
    EXPIRED = "expired"
    CANCELLED = "cancelled"
    DROPPED = "dropped"
    REPLAYED = "replayed"
    PLACED = "placed"  #: a coordinator placed it here, though it had gone or ended under an older placement


FINAL = frozenset({State.DONE, State.DEAD, State.EXPIRED, State.CANCELLED, State.UNKNOWN})

OPEN = frozenset(State) - FINAL

#: A dropped task leaves this queue; one that was handed over from here waits for its end elsewhere.
_DROPPED = frozenset({State.CANCELLED, State.HANDED_OVER})

#: (state, event) → the states it may lead to. `returned` carries whatever end the task met elsewhere: also
#: for a task that was handed over, placed back here and meanwhile ended somewhere else.
TRANSITIONS: dict[tuple[State, Event], frozenset[State]] = {
    (State.DELAYED, Event.DUE): frozenset({State.READY, State.BLOCKED}),
    (State.DELAYED, Event.EXPIRED): frozenset({State.EXPIRED}),
    (State.DELAYED, Event.CANCELLED): frozenset({State.CANCELLED}),
    (State.DELAYED, Event.DROPPED): _DROPPED,
    (State.BLOCKED, Event.UNBLOCKED): frozenset({State.READY}),
    (State.BLOCKED, Event.EXPIRED): frozenset({State.EXPIRED}),
    (State.BLOCKED, Event.CANCELLED): frozenset({State.CANCELLED}),
    (State.BLOCKED, Event.DROPPED): _DROPPED,
    (State.READY, Event.CLAIMED): frozenset({State.LEASED}),
    (State.READY, Event.EXPIRED): frozenset({State.EXPIRED}),
    (State.READY, Event.CANCELLED): frozenset({State.CANCELLED}),
    (State.READY, Event.DROPPED): _DROPPED,
    (State.LEASED, Event.RELEASED): frozenset({State.READY}),
    (State.LEASED, Event.STARTED): frozenset({State.RUNNING}),
    (State.LEASED, Event.HANDED_OVER): frozenset({State.HANDED_OVER}),
    (State.LEASED, Event.EXHAUSTED): frozenset({State.DEAD}),
    (State.LEASED, Event.EXPIRED): frozenset({State.EXPIRED}),
    (State.LEASED, Event.CANCELLED): frozenset({State.CANCELLED}),
    (State.LEASED, Event.DROPPED): _DROPPED,
    (State.RUNNING, Event.SUCCEEDED): frozenset({State.DONE}),
    (State.RUNNING, Event.RETRIED): frozenset({State.READY, State.DELAYED}),
    (State.RUNNING, Event.EXHAUSTED): frozenset({State.DEAD}),
    (State.RUNNING, Event.INTERRUPTED): frozenset({State.READY, State.UNKNOWN, State.DEAD}),
    (State.RUNNING, Event.EXPIRED): frozenset({State.EXPIRED}),
    (State.RUNNING, Event.CANCELLED): frozenset({State.CANCELLED}),
    (State.RUNNING, Event.DROPPED): _DROPPED,
    (State.HANDED_OVER, Event.RETURNED): FINAL,
    (State.HANDED_OVER, Event.EXPIRED): frozenset({State.EXPIRED, State.UNKNOWN}),
    (State.HANDED_OVER, Event.CANCELLED): frozenset({State.CANCELLED}),
    (State.HANDED_OVER, Event.PLACED): frozenset({State.READY}),
    (State.DELAYED, Event.RETURNED): FINAL,
    (State.BLOCKED, Event.RETURNED): FINAL,
    (State.READY, Event.RETURNED): FINAL,
    (State.LEASED, Event.RETURNED): FINAL,
    (State.RUNNING, Event.RETURNED): FINAL,
    (State.DEAD, Event.REPLAYED): frozenset({State.READY, State.BLOCKED}),
    (State.DEAD, Event.PLACED): frozenset({State.READY, State.BLOCKED}),
    (State.CANCELLED, Event.PLACED): frozenset({State.READY, State.BLOCKED}),
}


def check_transition(state: State, event: Event, after: State) -> None:
    """Raise InvalidTransition unless the table lets `event` lead from `state` to `after`."""
    if after not in TRANSITIONS.get((state, event), frozenset()):
        raise InvalidTransition(state, event)
