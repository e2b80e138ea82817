"""What can be asked of a damaged file: its rows by page, and where its trees say that a row or a key is.

Owns the open file and what is left of its schema; knows nothing of the store that its rows come to.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

from task_queue.damage.raw_pages import RawPages
from task_queue.damage.raw_search import entries, found_in, leaf_of
from task_queue.damage.remains import Remains
from task_queue.records import Unreadable, Value

_PLACED = "task_placed"
#: What a search in a damaged tree may end with.
UNSEARCHABLE = (Unreadable, IndexError, TypeError)


class OldFile:
    """One file that was set aside. The searches raise UNSEARCHABLE where the way is damaged."""

    def __init__(self, raw: RawPages, remains: Remains) -> None:
        """raw: closed with this."""
        self.raw = raw
        self.remains = remains

    def close(self) -> None:
        """Let go of the file."""
        self.raw.close()

    @cached_property
    def placed(self) -> frozenset[int]:
        """Open tasks of a coordinator, by row: it will find out by itself that one is missing."""
        pages = self.remains.of(_PLACED)
        rows = [row[1] for page in pages for row in self.raw.rows(page) if row is not None]
        return frozenset(row[0] for row in rows if isinstance(row[0], int))

    def entries(self, index: str, key: str | bytes) -> Iterator[list[Value]]:
        """Yield what an index holds under a key."""
        return entries(self.raw, self._root(index), key)

    def rows_under(self, index: str, key: str | bytes) -> Iterator[int]:
        """Yield the numbers of the rows that an index names under a key."""
        return (entry[-1] for entry in self.entries(index, key) if isinstance(entry[-1], int))

    def pages_with(self, table: str, key: bytes) -> set[int]:
        """Return the pages of a table without row numbers that hold a key."""
        return {page for page, _ in found_in(self.raw, self._root(table), key)}

    def page_of(self, table: str, row_id: int) -> tuple[int, int, int]:
        """Return the page of a table for a row, and above which and up to which number it has them."""
        return leaf_of(self.raw, self.remains.roots.get(table, 0), row_id)

    def confirms(self, index: str, key: str, row_id: int) -> bool:
        """Decide whether an index can be read and names a row under a key."""
        try:
            return row_id in self.rows_under(index, key)
        except UNSEARCHABLE:
            return False

    def _root(self, name: str) -> int:
        root = self.remains.roots.get(name)
        if root is None:
            raise Unreadable(f"{name} is not named any more")
        return root
