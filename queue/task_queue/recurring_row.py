"""What a store keeps of a recurring task: what was given, and how far it has come. Plain values."""

from __future__ import annotations

import msgspec

from skerry.ids import TaskId
from skerry.recurring import RecurringSpec

#: From one moment to another, both among them.
Span = tuple[float, float]


class Progress(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How far a recurring task has come: in powered-on seconds, or on the wall clock for a cron schedule."""

    due: float | None = None  #: the next time, None until the wall clock can be trusted
    owed: tuple[float, ...] = ()  #: missed times that are still to be made up for
    #: Times that are dealt with, newest last: a clock that steps back over them begins none of them again.
    spans: tuple[Span, ...] = ()
    runs: int = 0  #: tasks accepted so far
    missed: int = 0  #: times at which none could begin; those made up for later are among them
    last_task: TaskId | None = None
    last_wall_s: float | None = None  #: when the last one was accepted
    note: str = ""  #: why the last time was missed


class RecurringRow(msgspec.Struct, frozen=True, kw_only=True):
    """One recurring task as stored. recurring_id: makes the ids of its tasks unlike any other node's."""

    recurring_id: TaskId
    spec: RecurringSpec
    progress: Progress = Progress()

    @property
    def name(self) -> str:
        """Its name, unique in the store."""
        return self.spec.name

    @property
    def look_on_s(self) -> float | None:
        """When to look at it, in powered-on seconds; what is owed is looked at whenever time is."""
        if self.progress.owed:
            return 0.0
        return None if self.spec.cron is not None else self.progress.due

    @property
    def look_wall_s(self) -> float | None:
        """When to look at it on the wall clock: without a next time, as soon as that is trusted."""
        return None if self.spec.cron is None else self.progress.due or 0.0


class RecurringRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A recurring task as people and APIs see it.

    next_in_s: powered-on seconds to the next run, of one with every_s; next_wall_s: of one with cron.
    """

    spec: RecurringSpec
    runs: int
    missed: int
    owed: int
    last_task: TaskId | None = None
    last_wall_s: float | None = None
    next_in_s: float | None = None
    next_wall_s: float | None = None
    note: str = ""


def record_of(row: RecurringRow, on_s: float) -> RecurringRecord:
    """Return what is shown of a row, at this powered-on second of the store."""
    progress = row.progress
    is_cron = row.spec.cron is not None
    next_in_s = None if is_cron or progress.due is None else max(0.0, progress.due - on_s)
    return RecurringRecord(
        spec=row.spec,
        runs=progress.runs,
        missed=progress.missed,
        owed=len(progress.owed),
        last_task=progress.last_task,
        last_wall_s=progress.last_wall_s,
        next_in_s=next_in_s,
        next_wall_s=progress.due if is_cron else None,
        note=progress.note,
    )
