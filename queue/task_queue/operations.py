"""What a store can be asked to do, and its answers: plain values, so that it can be logged and replayed.

Operations handed over together are committed together. An expected refusal (a lost lease, a stale fence) is
an answer, not an error: it changes nothing and lets the rest of the commit stand.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from skerry.decision import Decision
from skerry.fence import Fence
from skerry.ids import TaskId
from skerry.messages import Lane, Outcome
from skerry.recurring import RecurringSpec
from skerry.task import TaskSpec
from task_queue.task import State


class _Value(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """An operation or an answer."""


class Enqueue(_Value, frozen=True, kw_only=True):
    """Accept a task. placement: when a coordinator placed it here; lease_s: how long that holds unrenewed."""

    task_id: TaskId
    task: TaskSpec
    placement: Fence | None = None
    home_node: str = ""
    lease_s: float | None = None
    wall_s: float = 0.0


class Claim(_Value, frozen=True, kw_only=True):
    """Take up to `limit` ready tasks, in queue order (priority, then arrival), into memory leases."""

    limit: int


class Release(_Value, frozen=True, kw_only=True):
    """Give a claimed task back unstarted."""

    task_id: TaskId


class Start(_Value, frozen=True, kw_only=True):
    """Begin an attempt of a claimed task: durable before it runs, so that no two attempts share a fence."""

    task_id: TaskId
    device: str
    decision: Decision | None = None


class Finish(_Value, frozen=True, kw_only=True):
    """Commit a success under its fence, with its report in the outbox, in one transaction."""

    task_id: TaskId
    fence: Fence
    outcome: Outcome


class Fail(_Value, frozen=True, kw_only=True):
    """End an attempt without success: try again after `retry_after_s`, or park it when tries are used up.

    may_retry: False parks it at once (the task itself is at fault).
    counts: False when the attempt was not the task's fault (its device died); the tries are left alone.
    """

    task_id: TaskId
    fence: Fence
    outcome: Outcome
    retry_after_s: float = 0.0
    may_retry: bool = True
    counts: bool = True


class Park(_Value, frozen=True, kw_only=True):
    """Dead-letter a claimed task that can never run here, with the reason."""

    task_id: TaskId
    reason: str
    decision: Decision | None = None


class HandOver(_Value, frozen=True, kw_only=True):
    """Offer a claimed task to the coordinator: the row stays, the offer goes into the outbox."""

    task_id: TaskId
    reason: str
    decision: Decision | None = None


class RefusePlacement(_Value, frozen=True, kw_only=True):
    """Give a placed, claimed task back to the coordinator: the refusal goes into the outbox."""

    task_id: TaskId
    reason: str


class RecordPlacement(_Value, frozen=True, kw_only=True):
    """Note where a task that was handed over went (or why it waits), for people."""

    task_id: TaskId
    fence: Fence
    node: str
    decision: Decision


class OfferAgain(_Value, frozen=True, kw_only=True):
    """Offer a task that was handed over once more: the ledger that had it is gone."""

    task_id: TaskId


class Return(_Value, frozen=True, kw_only=True):
    """Commit the end of a task that was handed over."""

    task_id: TaskId
    fence: Fence
    outcome: Outcome


class Drop(_Value, frozen=True, kw_only=True):
    """Forget a placed task whose placement was revoked, unless it has ended; nothing is reported."""

    task_id: TaskId
    fence: Fence


class RenewPlacements(_Value, frozen=True, kw_only=True):
    """Every placed task held here is good for another `lease_s` (the coordinator answered)."""

    lease_s: float


class Cancel(_Value, frozen=True, kw_only=True):
    """End a task at the submitter's wish. A running one ends at once here; its process must be stopped."""

    task_id: TaskId
    reason: str = ""


class Replay(_Value, frozen=True, kw_only=True):
    """Make a dead-lettered task ready again with fresh tries."""

    task_id: TaskId


class Advance(_Value, frozen=True, kw_only=True):
    """Do what time asks: make due tasks ready, expire those whose time ran out. At most `limit` of each."""

    limit: int = 1000


class AppendOutbox(_Value, frozen=True, kw_only=True):
    """Queue a message. A non-empty coalesce key replaces an unsent older row with that key."""

    lane: Lane
    kind: str
    body: bytes
    key: str = ""
    coalesce: str = ""


class TrimOutbox(_Value, frozen=True, kw_only=True):
    """The other side's application has committed everything of `lane` up to `upto`.

    epoch: of the store whose numbers these are, since another one gave them to other rows; empty: this one's.
    """

    lane: Lane
    upto: int
    epoch: str = ""


class CountLoss(_Value, frozen=True, kw_only=True):
    """Rows were lost outside the store's own rules (a command that could not be read): count them."""

    lost_class: str
    reason: str
    rows: int = 1
    size_bytes: int = 0


class MarkInbox(_Value, frozen=True, kw_only=True):
    """Record that `source`'s stream is applied up to `upto`: committed with what the rows asked for."""

    source: str
    epoch: str
    lane: Lane
    upto: int


class PutMeta(_Value, frozen=True, kw_only=True):
    """Keep one small named value (at most 64 KiB of JSON)."""

    name: str
    value: Any


class PutRecurring(_Value, frozen=True, kw_only=True):
    """Keep a recurring task, or give the one with its name another task, schedule or rule.

    recurring_id: an id of its own, for one that is new.
    """

    recurring_id: TaskId
    spec: RecurringSpec


class DropRecurring(_Value, frozen=True, kw_only=True):
    """Forget a recurring task; what it has become already goes on."""

    name: str


Operation = (
    Enqueue
    | Claim
    | Release
    | Start
    | Finish
    | Fail
    | Park
    | HandOver
    | RefusePlacement
    | RecordPlacement
    | OfferAgain
    | Return
    | Drop
    | RenewPlacements
    | Cancel
    | Replay
    | Advance
    | AppendOutbox
    | TrimOutbox
    | CountLoss
    | MarkInbox
    | PutMeta
    | PutRecurring
    | DropRecurring
)


class Enqueued(_Value, frozen=True, kw_only=True):
    """The task is accepted (once this commit is synced). is_new: False when its key or id was known."""

    task_id: TaskId
    is_new: bool = True
    pause_s: float = 0.0  #: room is short: let the producer wait this long for its answer


class ClaimedTask(_Value, frozen=True, kw_only=True):
    """A task in the window. expires_in_s: what is left of its own time, None without a limit."""

    task_id: TaskId
    task: TaskSpec
    attempt: int  #: attempts so far
    placement: Fence | None = None
    expires_in_s: float | None = None
    deadline_in_s: float | None = None
    seq: int = 0  #: order of arrival


class Claimed(_Value, frozen=True, kw_only=True):
    """What a claim got, in queue order."""

    tasks: tuple[ClaimedTask, ...]


class Started(_Value, frozen=True, kw_only=True):
    """The attempt may run, under this fence."""

    task_id: TaskId
    fence: Fence


class Changed(_Value, frozen=True, kw_only=True):
    """The task is in `state` now."""

    task_id: TaskId
    state: State
    was: State | None = None


#: Why nothing was changed; the last two are the agent's own words, said before the store is asked.
Reason = Literal[
    "full",
    "too_large",
    "not_found",
    "ended",
    "not_allowed",
    "lease_lost",
    "fenced",
    "unsatisfiable",
    "stopping",
]


class Refused(_Value, frozen=True, kw_only=True):
    """Nothing was changed."""

    reason: Reason
    message: str
    task_id: TaskId | None = None
    retry_after_s: float | None = None  #: of "full": when there may be room again


class Advanced(_Value, frozen=True, kw_only=True):
    """What time changed. expired: with the state each was in, so that a running process can be stopped."""

    ready: int
    expired: tuple[tuple[TaskId, State], ...]
    #: Tasks that are elsewhere and whose time is long over: their end is unknown.
    given_up: tuple[tuple[TaskId, State], ...] = ()
    dropped: tuple[tuple[TaskId, State], ...] = ()  #: placed tasks whose lease ran out before they started
    fired: tuple[TaskId, ...] = ()  #: tasks that recurring ones have become
    next_due_in_s: float | None = None  #: seconds until time asks for something again


class Appended(_Value, frozen=True, kw_only=True):
    """The row's sequence number."""

    seq: int


class Dropped(_Value, frozen=True, kw_only=True):
    """Room is short and the row was telemetry: it is not kept, and counted in the loss ledger."""


class Ok(_Value, frozen=True, kw_only=True):
    """Done."""


Answer = Enqueued | Claimed | Started | Changed | Refused | Advanced | Appended | Dropped | Ok
