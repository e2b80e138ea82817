"""A recurring task as given: what runs, when, and what becomes of runs that could not begin in time.

Validated once at the border, frozen after that. Knows nothing of queues.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from skerry.cron import check_cron
from skerry.decoding import MALFORMED, why_malformed
from skerry.errors import SpecError
from skerry.nearest import name_nearest
from skerry.task import TaskSpec, check_task

#: What becomes of runs that could not begin in time: none is made up for, one for all of them, or each.
Missed = Literal["skip", "once", "all"]
#: Whether a run begins while the one before it has not ended.
Overlap = Literal["forbid", "allow"]

_NAME = re.compile(r"[a-z0-9](?:[a-z0-9._-]{0,62}[a-z0-9])?")


class RecurringSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A task that is run again and again: every so many powered-on seconds, or at times of the wall clock."""

    name: str
    task: TaskSpec
    #: Powered-on seconds between two runs. Exactly one of every_s and cron.
    every_s: Annotated[float, Meta(ge=1, le=366 * 86400)] | None = None
    #: Five fields. It waits while the node's clock is not trusted.
    cron: Annotated[str, Meta(min_length=1, max_length=256)] | None = None
    timezone: Annotated[str, Meta(min_length=1, max_length=64)] = "UTC"
    missed: Missed = "skip"
    #: With `all`: how many missed runs are made up for at most, the newest.
    missed_limit: Annotated[int, Meta(ge=1, le=100)] = 10
    #: A run that begins at most so many seconds late is not missed.
    grace_s: Annotated[float, Meta(ge=1, le=86400)] = 60.0
    overlap: Overlap = "forbid"

    @property
    def schedule(self) -> str:
        """The schedule in words."""
        if self.cron is not None:
            return f"{self.cron} ({self.timezone})"
        return f"every {self.every_s:g} s"


def parse_recurring(document: bytes) -> RecurringSpec:
    """Return the recurring task in a JSON document.  Raises SpecError that names the field at fault."""
    try:
        return check_recurring(msgspec.json.decode(document, type=RecurringSpec))
    except msgspec.ValidationError as error:
        raise _spec_error(str(error)) from error
    except MALFORMED as error:
        raise SpecError(f"the recurring task is not valid JSON: {why_malformed(error)}") from error


def convert_recurring(value: Any) -> RecurringSpec:
    """Return the recurring task in plain values (a TOML document's).  Raises SpecError."""
    try:
        return check_recurring(msgspec.convert(value, type=RecurringSpec))
    except msgspec.ValidationError as error:
        raise _spec_error(str(error)) from error


def check_recurring(spec: RecurringSpec) -> RecurringSpec:
    """Return spec when the rules that span fields hold; else raise SpecError."""
    if not _NAME.fullmatch(spec.name):
        raise SpecError(
            f"name {spec.name[:80]!r} is not valid: use 1 to 64 of a-z, 0-9 and inner '.', '_' and '-'",
            field="name",
        )
    if (spec.every_s is None) == (spec.cron is None):
        raise SpecError("give exactly one of every_s (seconds) and cron (five fields)", field="every_s")
    if spec.cron is not None:
        check_cron(spec.cron, spec.timezone)
    if spec.task.idempotency_key is not None:
        raise SpecError(
            "task.idempotency_key: leave it out; each run gets one of its own, made of the name and its time",
            field="task.idempotency_key",
        )
    check_task(spec.task)
    return spec


def _spec_error(text: str) -> SpecError:
    message, _, path = text.partition(" - at `$")
    field = path.rstrip("`").lstrip(".")
    named = name_nearest(RecurringSpec, message, field)
    return SpecError(
        named if "unknown field" in message else f"{field or 'the document'}: {named}", field=field
    )
