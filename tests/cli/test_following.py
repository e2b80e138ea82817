"""Following something until it has ended: each change once, and an end to patience."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from skerry.cli import following
from skerry.cli.following import changes


@pytest.fixture(autouse=True)
def naps(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How long was slept: the clock moves by it, and no time passes."""
    found: list[float] = []
    monkeypatch.setattr(following.time, "sleep", found.append)
    monkeypatch.setattr(following.time, "monotonic", lambda: sum(found))
    return found


def answers(*given: str) -> Callable[[], str]:
    """Gives these in turn, and the last one again and again."""
    left = list(given)
    return lambda: left.pop(0) if len(left) > 1 else left[0]


def test_each_change_is_told_once_until_it_has_ended(naps: list[float]) -> None:
    told = list(changes(answers("a", "a", "b", "b", "end"), has_ended=lambda one: one == "end"))

    assert told == ["a", "b", "end"]
    assert naps == [following.POLL_S] * 4


def test_what_does_not_count_is_no_change() -> None:
    told = list(
        changes(answers("a 9", "a 8", "b 8"), has_ended=lambda one: one[0] == "b", seen=lambda one: one[0])
    )

    assert told == ["a 9", "b 8"]


def test_patience_ends_with_the_newest_answer(naps: list[float]) -> None:
    assert list(changes(answers("a"), has_ended=lambda one: False, within_s=3.0)) == ["a"]
    assert sum(naps) == 3.0
