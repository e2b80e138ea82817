"""The named SQL of this package: statements from queries.sql, schema files in their order."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files

_HEADING = re.compile(r"^-- name: (\w+)$", re.MULTILINE)
_ASSIGNED = re.compile(r"(\w+)\"? = :(\w+)")


@cache
def statements() -> dict[str, str]:
    """Return every statement by its name."""
    text = files("task_queue").joinpath("queries.sql").read_text(encoding="utf-8")
    parts = _HEADING.split(text)[1:]
    return {name: _without_comments(body) for name, body in zip(parts[::2], parts[1::2], strict=True)}


def _without_comments(body: str) -> str:
    lines = [line for line in body.splitlines() if not line.startswith("--")]
    return "\n".join(lines).strip().removesuffix(";")


@cache
def columns_written(name: str) -> frozenset[str]:
    """Return the columns that an UPDATE statement sets."""
    assigned = statements()[name].partition("WHERE")[0]
    return frozenset(column for column, _ in _ASSIGNED.findall(assigned))


@cache
def schema_files() -> tuple[str, ...]:
    """Return the schema's steps; step n brings a database to version n."""
    folder = files("task_queue").joinpath("schema")
    names = sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(".sql"))
    return tuple(folder.joinpath(name).read_text(encoding="utf-8") for name in names)
