"""When a recurring task is due: the next time, the times that have passed, and those dealt with. Pure.

One axis a schedule: powered-on seconds of the store, which never step, or the wall clock, which may.
"""

from __future__ import annotations

from math import floor

from skerry.cron import Passed, next_after, passed
from skerry.recurring import RecurringSpec
from task_queue.recurring_row import Span

#: Spans of dealt-with times that are kept: each step of the wall clock begins another.
SPANS_KEPT = 16


def first_after(spec: RecurringSpec, now: float, spans: tuple[Span, ...] = ()) -> float | None:
    """Return the first time after now that is not dealt with; None when the schedule has no more."""
    if spec.cron is None:
        return now + _step(spec)
    at = next_after(spec.cron, spec.timezone, now)
    while at is not None and (span := _span_over(spans, at)) is not None:
        at = next_after(spec.cron, spec.timezone, span[1])
    return at


def next_due(spec: RecurringSpec, due: float, now: float, spans: tuple[Span, ...]) -> float | None:
    """Return the first time after now, of a schedule that was due at `due`: its beat is kept."""
    if spec.cron is not None:
        return first_after(spec, now, spans)
    step = _step(spec)
    return due + (floor(max(0.0, now - due) / step) + 1) * step


def passed_by(spec: RecurringSpec, due: float, now: float, keep: int, spans: tuple[Span, ...]) -> Passed:
    """Return the times from `due` to now that are over, the newest `keep` of them by name.

    What lies before a span was passed before the span was: after a clock was set back and then right again,
    only what comes after the last one is news.
    """
    if spec.cron is not None:
        since = max([due, *(end + 1.0 for begin, end in spans if begin <= now)])
        return passed(spec.cron, spec.timezone, since, now, keep)
    step = _step(spec)
    count = floor((now - due) / step) + 1
    return Passed(count, tuple(due + number * step for number in range(max(0, count - keep), count)))


def with_time(spec: RecurringSpec, spans: tuple[Span, ...], at: float) -> tuple[Span, ...]:
    """Return the spans with a time that is dealt with now; only a wall clock can come back to one."""
    if spec.cron is None or _span_over(spans, at) is not None:
        return spans
    if spans and next_after(spec.cron, spec.timezone, spans[-1][1]) == at:
        return (*spans[:-1], (spans[-1][0], at))
    return (*spans, (at, at))[-SPANS_KEPT:]


def _span_over(spans: tuple[Span, ...], at: float) -> Span | None:
    return next((span for span in spans if span[0] <= at <= span[1]), None)


def _step(spec: RecurringSpec) -> float:
    assert spec.every_s is not None  # exactly one of the two is given
    return spec.every_s
