"""What the agent's HTTP API says of its queue: batches, dead letters, stories, recurring tasks, checks.

Pure values, like skerry.documents. States are text here, so that an older client can read a newer service's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from skerry.documents import Document
from skerry.problem import Problem
from skerry.recurring import RecurringSpec
from skerry.task import TaskSpec

#: Tasks in one batch at most, and ids in one replay.
BATCH_LIMIT = 1000
#: Bytes of one batch at most.
BATCH_LIMIT_BYTES = 8 * 1024 * 1024

#: Seconds since 1970, before the year 10000.
Moment = Annotated[float, Meta(ge=0, lt=253_402_300_800)]


class TaskBatch(Document, frozen=True, kw_only=True):
    """Tasks that are submitted together."""

    tasks: Annotated[tuple[TaskSpec, ...], Meta(max_length=BATCH_LIMIT)]


class TaskAnswer(Document, frozen=True, kw_only=True):
    """What became of one task of a batch. status: 201 accepted, 200 its key was known, else the problem's."""

    status: int
    task_id: str | None = None
    is_new: bool = False
    problem: Problem | None = None


class BatchAnswer(Document, frozen=True, kw_only=True):
    """One answer per task, in the batch's order. What was accepted was accepted in one commit."""

    accepted: int
    known: int
    refused: int
    answers: tuple[TaskAnswer, ...]


class ReplayRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which dead letters are to be ready again: those named, those that a filter fits, or all.

    since_s, until_s: accepted from then on, and before then, seconds since 1970.
    """

    ids: Annotated[tuple[str, ...], Meta(max_length=BATCH_LIMIT)] = ()
    kind: str | None = None
    priority: Annotated[int, Meta(ge=0, le=9)] | None = None
    since_s: Moment | None = None
    until_s: Moment | None = None
    all: bool = False
    limit: Annotated[int, Meta(ge=1, le=BATCH_LIMIT)] = BATCH_LIMIT
    dry_run: bool = False  #: only say how many

    @property
    def has_filter(self) -> bool:
        """Something besides ids says which."""
        return any(value is not None for value in (self.kind, self.priority, self.since_s, self.until_s))


class ReplayRefused(Document, frozen=True, kw_only=True):
    """One dead letter that stays dead, and why."""

    task_id: str
    reason: str


class ReplayAnswer(Document, frozen=True, kw_only=True):
    """What became of a replay. is_more: the limit was met; the same request again goes on."""

    matched: int
    replayed: int
    dry_run: bool = False
    is_more: bool = False
    task_ids: tuple[str, ...] = ()
    refused: tuple[ReplayRefused, ...] = ()


class StoryEvent(Document, frozen=True, kw_only=True):
    """One thing that happened to a task. on_s: powered-on seconds of the store, where they were kept.

    detail: fence, device, node, decision, outcome, error, runtime_s: as they apply.
    """

    what: str
    at_wall_s: float
    on_s: float | None = None
    detail: Mapping[str, Any] = {}


class StoryView(Document, frozen=True, kw_only=True):
    """What happened to a task, oldest first."""

    task_id: str
    state: str
    kind: str
    events: tuple[StoryEvent, ...]


class RecurringView(Document, frozen=True, kw_only=True):
    """A recurring task and how far it has come.

    next_in_s: of one with every_s, powered-on seconds; next_wall_s: of one with cron, None while the clock is
    not trusted.
    """

    name: str
    schedule: str
    spec: RecurringSpec
    runs: int = 0
    missed: int = 0
    owed: int = 0  #: missed runs that will still be made up for
    last_task: str | None = None
    last_wall_s: float | None = None
    next_in_s: float | None = None
    next_wall_s: float | None = None
    note: str = ""  #: why the last missed run was missed


class RecurringPage(Document, frozen=True, kw_only=True):
    """All recurring tasks, by name."""

    recurring: tuple[RecurringView, ...]


class LossView(Document, frozen=True, kw_only=True):
    """What was lost of one class for one reason since this queue began."""

    lost_class: str
    reason: str
    rows: int
    size_bytes: int


class QueueCheck(Document, frozen=True, kw_only=True):
    """What a check of the database found; nothing: it is whole.

    rows: tasks that were counted; took_s: how long it took; at_wall_s: when it ended.
    """

    is_whole: bool
    findings: tuple[str, ...] = ()
    rows: int = 0
    took_s: float = 0.0
    at_wall_s: float = 0.0


class QueueDetails(Document, frozen=True, kw_only=True):
    """What a queue holds. waiting_by_priority: of ready tasks; outbox_by_class: rows and bytes of messages.

    level: how short room is, in a word; fullness: share of the budget in use; oldest: of the ready tasks.
    """

    path: str
    epoch: str
    schema: int
    by_state: dict[str, int]
    waiting_by_priority: dict[str, int]
    outbox: dict[str, int]
    outbox_by_class: dict[str, dict[str, int]]
    level: str
    fullness: float
    used_bytes: int
    file_bytes: int
    log_bytes: int
    free_bytes: int
    limit_bytes: int | None = None
    ballast_bytes: int = 0
    oldest_task: str | None = None
    oldest_age_s: float | None = None
    recurring: int = 0
    losses: tuple[LossView, ...] = ()
    last_check: QueueCheck | None = None
