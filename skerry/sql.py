"""Named SQL: statements under `-- name: x` in a package's queries.sql, schema files in their order.

Owns the format of those files. Knows no database.
"""

from __future__ import annotations

import re
from functools import cache
from importlib import resources

_HEADING = re.compile(r"^-- name: (\w+)$", re.MULTILINE)


@cache
def load_statements(package: str) -> dict[str, str]:
    """Return every statement of the package's queries.sql by its name."""
    text = (resources.files(package) / "queries.sql").read_text(encoding="utf-8")
    parts = _HEADING.split(text)[1:]
    return {name: _without_comments(body) for name, body in zip(parts[::2], parts[1::2], strict=True)}


def _without_comments(body: str) -> str:
    lines = [line for line in body.splitlines() if not line.startswith("--")]
    return "\n".join(lines).strip().removesuffix(";")


@cache
def load_schema(package: str) -> tuple[str, ...]:
    """Return the package's schema steps; step n brings a database to version n."""
    folder = resources.files(package) / "schema"
    names = sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(".sql"))
    return tuple((folder / name).read_text(encoding="utf-8") for name in names)
