"""The named SQL of this package, and what its statements write."""

from __future__ import annotations

import re
from functools import cache

from skerry.sql import load_statements

PACKAGE = "task_queue"
_NAMED = re.compile(r":([a-z_]+)")
_ASSIGNED = re.compile(r"(\w+)\"? = :(\w+)")


def statements() -> dict[str, str]:
    """Return every statement by its name."""
    return load_statements(PACKAGE)


@cache
def columns_written(name: str) -> frozenset[str]:
    """Return the columns that an UPDATE statement sets."""
    assigned = statements()[name].partition("WHERE")[0]
    return frozenset(column for column, _ in _ASSIGNED.findall(assigned))


@cache
def parameters(name: str) -> tuple[str, ...]:
    """Return the names that a statement binds, in the order of their numbers: that of first appearance."""
    return tuple(dict.fromkeys(_NAMED.findall(statements()[name])))
