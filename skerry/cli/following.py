"""Following something at the coordinator until it has ended: ask again, and go on with what is new."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

import typer

from skerry.cli.output import print_line_json

#: How often the coordinator is asked, s.
POLL_S = 0.5
T = TypeVar("T")


def changes(
    ask: Callable[[], T],
    *,
    has_ended: Callable[[T], bool],
    seen: Callable[[T], object] = lambda answer: answer,
    within_s: float = math.inf,
) -> Iterator[T]:
    """Yield the first answer and each that differs from the one before, until it has ended or time is over.

    seen: what of an answer must differ.  within_s: after this long the newest answer is the last one.
    """
    until = time.monotonic() + within_s
    last: object = object()
    while True:
        answer = ask()
        if (now := seen(answer)) != last:
            last = now
            yield answer
        if has_ended(answer) or time.monotonic() >= until:
            return
        time.sleep(POLL_S)  # the coordinator's interface answers only: nothing there could be waited on


def follow(answers: Iterator[T], line_of: Callable[[T], str], *, as_json: bool) -> T | None:
    """Print a line for each answer; return the last one."""
    last = None
    for last in answers:
        if as_json:
            print_line_json(last)
        else:
            typer.echo(line_of(last))
    return last
