"""Reads the named SQL of a ledger. Owns the format: `-- name: x`, comment, statement up to `;`."""

from __future__ import annotations

import re
from importlib import resources

_PACKAGE = "cloud_coordinator.ledger"
_NAMED = re.compile(r"^-- name: (\w+)\n((?:--[^\n]*\n)*)(.*?);$", re.MULTILINE | re.DOTALL)


def load_statements() -> dict[str, str]:
    """Return every statement of queries.sql by its name."""
    text = (resources.files(_PACKAGE) / "queries.sql").read_text(encoding="utf-8")
    return {match[1]: match[3] for match in _NAMED.finditer(text)}


def load_schema() -> list[str]:
    """Return the migrations in order; the number of those applied is the database's user_version."""
    folder = resources.files(_PACKAGE) / "schema"
    files = sorted((entry.name, entry) for entry in folder.iterdir() if entry.name.endswith(".sql"))
    return [entry.read_text(encoding="utf-8") for _, entry in files]
