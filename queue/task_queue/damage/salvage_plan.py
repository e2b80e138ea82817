"""In which order the pages of a damaged file are brought over, and which of them have been. Plain values."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Sequence

from task_queue.damage.raw_pages import RawPages
from task_queue.damage.remains import BY_ID, BY_KEY, Remains

#: Tables in the order of what they are worth; the others follow.
_FIRST = ("meta", "inbox", "remembered", "recurring", "loss", "outbox", "task")


class Plan:
    """Units of work by number: each is one page of one table or index."""

    def __init__(self, raw: RawPages, remains: Remains, tables: Sequence[str]) -> None:
        """Plan for these tables; the store's own row is no part of it."""
        others = sorted(set(tables) - {*_FIRST, "store"})
        names = (*(name for name in _FIRST if name in tables), *others, BY_ID, BY_KEY)
        self._parts = [(name, _ordered(raw, name, remains.of(name))) for name in names]

    def __len__(self) -> int:
        """Return how many units there are."""
        return sum(len(pages) for _, pages in self._parts)

    def unit(self, number: int) -> tuple[str, int]:
        """Return a unit's table and page."""
        for name, pages in self._parts:
            if number < len(pages):
                return name, pages[number]
            number -= len(pages)
        raise IndexError(number)

    def span(self, table: str) -> range:
        """Return the units of a table."""
        before = 0
        for name, pages in self._parts:
            if name == table:
                return range(before, before + len(pages))
            before += len(pages)
        return range(0)

    def number_of(self, table: str, page: int) -> int:
        """Return the unit of a page, -1 when it is none. Not for the outbox: its pages have another order."""
        before = 0
        for name, pages in self._parts:
            if name == table:
                sign = -1 if name == "task" else 1
                found = bisect_left(pages, sign * page, key=lambda other: sign * other)
                return before + found if found < len(pages) and pages[found] == page else -1
            before += len(pages)
        return -1


def _ordered(raw: RawPages, name: str, pages: array[int]) -> array[int]:
    if name == "task":  # the newest are on the last pages
        return pages[::-1]
    if name == "outbox":  # messages keep their order
        return array("I", sorted(pages, key=lambda page: _first_id(raw, page)))
    return pages


def _first_id(raw: RawPages, page: int) -> int:
    return next((row[0] for row in raw.rows(page) if row is not None), 0)
