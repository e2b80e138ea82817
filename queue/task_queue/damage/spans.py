"""Which of many numbers are taken, as spans from one to another: few say it of a long run. Plain values."""

from __future__ import annotations

from bisect import bisect_right

#: [first, last] each, ascending, with a gap between any two.
Spans = list[list[int]]


def has(spans: Spans, number: int) -> bool:
    """Decide whether a number is taken."""
    at = bisect_right(spans, number, key=_first) - 1
    return at >= 0 and number <= spans[at][1]


def add(spans: Spans, number: int) -> None:
    """Take a number that is free."""
    at = bisect_right(spans, number, key=_first)
    ends_below = at > 0 and spans[at - 1][1] + 1 == number
    begins_above = at < len(spans) and spans[at][0] - 1 == number
    if ends_below and begins_above:
        spans[at - 1][1] = spans.pop(at)[1]
    elif ends_below:
        spans[at - 1][1] = number
    elif begins_above:
        spans[at][0] = number
    else:
        spans.insert(at, [number, number])


def take_from(spans: Spans, number: int) -> int:
    """Return the first number from this one on that is free, and forget the span below it.

    No span may begin below the number.
    """
    if not spans or spans[0][0] != number:
        return number
    return spans.pop(0)[1] + 1


def _first(span: list[int]) -> int:
    return span[0]
