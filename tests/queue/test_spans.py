"""Spans of numbers are as good as a set of them, and shorter."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from task_queue.damage import spans


@given(st.lists(st.integers(0, 40), unique=True))
def test_what_was_added_is_there_and_nothing_else_in_as_few_spans_as_can_be(numbers: list[int]) -> None:
    taken: spans.Spans = []
    for number in numbers:
        spans.add(taken, number)

    assert [number for number in range(42) if spans.has(taken, number)] == sorted(numbers)
    assert [number for first, last in taken for number in range(first, last + 1)] == sorted(numbers)
    assert all(one[1] + 1 < other[0] for one, other in pairwise(taken))


@given(st.sets(st.integers(0, 40)))
def test_walking_over_them_meets_each_free_number_once(numbers: set[int]) -> None:
    taken: spans.Spans = []
    for number in numbers:
        spans.add(taken, number)

    met, at = [], 0
    while (free := spans.take_from(taken, at)) <= 41:
        met.append(free)
        at = free + 1

    assert met == [number for number in range(42) if number not in numbers]
    assert taken == []
