"""Running exhaustive checks, one kind of tasks after the other, without a word from the parts in the log."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from twin.faithful.exhaustive import Search
from twin.faithful.exhaustive_setting import TASKS, make_setting
from twin.faithful.exhaustive_values import Bounds, Checked


def check_tasks(
    tasks: str, bounds: Bounds, *, progress: Callable[[int, int], None] | None = None
) -> list[Checked]:
    """Return what came of checking one kind of tasks, or all up to the first that shows a broken law.

    Raises SpecError for an unknown kind.
    """
    done: list[Checked] = []
    with _unheard():
        for name in tuple(TASKS) if tasks == "all" else (tasks,):
            done.append(Search(make_setting(name), bounds).run(progress))
            if done[-1].broken:
                break
    return done


@contextmanager
def _unheard() -> Iterator[None]:
    """Keep the parts from warning of what is done to them on purpose, thousands of times."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)
