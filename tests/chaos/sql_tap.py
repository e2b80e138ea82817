"""Between the product and SQLite: one text can be put in the place of another, and it is known what was run.

Every connection of this process runs through it once it is in place. Knows no statement.
"""

from __future__ import annotations

import sys
from typing import Any

import apsw

#: What is run in the place of what.
replaced: dict[str, str] = {}
#: What was to be run, and the file of whoever wanted it.
seen: dict[str, str] = {}


class _Tapped(apsw.Cursor):
    def execute(self, statements: str, *values: Any, **options: Any) -> apsw.Cursor:
        """See apsw."""
        return super().execute(_heard(statements), *values, **options)

    def executemany(self, statements: str, *values: Any, **options: Any) -> apsw.Cursor:
        """See apsw."""
        return super().executemany(_heard(statements), *values, **options)


def _heard(statements: str) -> str:
    seen[statements] = sys._getframe(2).f_code.co_filename
    return replaced.get(statements, statements)


def put_in_place() -> None:
    """Hear every connection that is opened from now on."""
    apsw.connection_hooks.append(lambda connection: setattr(connection, "cursor_factory", _Tapped))
