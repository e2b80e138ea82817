"""Times of a cron expression on the wall clock: five fields, evaluated in a named time zone.

Owns what a valid expression is and which moments it names; the evaluation itself is cronsim's, which follows
Debian's cron through changes to and from summer time. Knows nothing of tasks. Moments are seconds since 1970.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from datetime import UTC, datetime, tzinfo
from typing import NamedTuple

from skerry.errors import SpecError

#: Times that are counted one by one; a longer gap is told as at least so many.
COUNT_LIMIT = 1000


class Passed(NamedTuple):
    """Times that have passed. total: how many, at most COUNT_LIMIT; newest: the latest, oldest first."""

    total: int
    newest: tuple[float, ...]


def check_cron(expression: str, zone: str, *, field: str = "cron") -> None:
    """Raise SpecError unless the expression has five fields and names a moment, and the zone is known."""
    if len(expression.split()) != 5:
        raise SpecError(
            f"{field}: {expression!r} has {len(expression.split())} fields; five are needed (minute, hour, "
            "day of month, month, day of week), for example '0 * * * *' for every hour",
            field=field,
        )
    if next_after(expression, zone, 0.0, field=field) is None:
        raise SpecError(f"{field}: {expression!r} names no moment at all", field=field)


def next_after(expression: str, zone: str, wall_s: float, *, field: str = "cron") -> float | None:
    """Return the first moment after wall_s, None when there is none.  Raises SpecError."""
    return next(_times(expression, zone, wall_s, field=field), None)


def passed(expression: str, zone: str, since_s: float, until_s: float, keep: int) -> Passed:
    """Return the moments from since_s to until_s, both among them; keep: how many of the newest."""
    newest: deque[float] = deque(maxlen=keep)
    count = 0
    for moment in _times(expression, zone, since_s - 1.0):
        if moment > until_s:
            return Passed(count, tuple(newest))
        if count == COUNT_LIMIT:
            break
        count += 1
        newest.append(moment)
    return Passed(count, _newest(expression, zone, since_s, until_s, keep))


def _newest(expression: str, zone: str, since_s: float, until_s: float, keep: int) -> tuple[float, ...]:
    """Look back from the end: a gap of years must not be walked from its beginning."""
    found: list[float] = []
    for moment in _times(expression, zone, until_s + 1.0, is_backward=True):
        if moment < since_s or len(found) == keep:
            break
        if moment <= until_s:
            found.append(moment)
    return tuple(reversed(found))


def _times(
    expression: str, zone: str, from_s: float, *, is_backward: bool = False, field: str = "cron"
) -> Iterator[float]:
    """Yield the moments after from_s (or before it), each further on than the last."""
    from cronsim import CronSim, CronSimError  # only nodes with a cron schedule need it

    try:
        start = datetime.fromtimestamp(int(from_s), _zone(zone))
        moments = CronSim(expression, start, reverse=is_backward)
    except (CronSimError, ValueError, OverflowError) as error:
        raise SpecError(f"{field}: {expression!r} is not a cron expression: {error}", field=field) from error
    last = from_s
    for moment in moments:
        at = moment.timestamp()
        if at < last if is_backward else at > last:  # an hour that happens twice is told once
            last = at
            yield at


def _zone(name: str) -> tzinfo:
    from zoneinfo import ZoneInfo

    if name == "UTC":
        return UTC
    try:
        return ZoneInfo(name)
    except (KeyError, OSError, ValueError) as error:
        raise SpecError(
            f"timezone: {name[:80]!r} is not known on this machine; give a name like 'Europe/Paris', or "
            "'UTC' (names come from the system's package tzdata)",
            field="timezone",
        ) from error
