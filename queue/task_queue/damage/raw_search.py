"""Looking one key up in the trees of a damaged file, from the root down. Knows no table."""

from __future__ import annotations

from collections.abc import Iterator

from task_queue.damage.raw_pages import INDEX_LEAF, INDEX_NODE, TABLE_LEAF, TABLE_NODE, RawPages
from task_queue.records import Unreadable, Value

_DEPTH_LIMIT = 24


def leaf_of(raw: RawPages, root: int, row_id: int) -> tuple[int, int, int]:
    """Return the page of a table for a row, and above which and up to which id it has them.

    Raises Unreadable.
    """
    number, low, high = root, -(1 << 63), (1 << 63) - 1
    for _ in range(_DEPTH_LIMIT):
        kind = raw.kind(number)
        if kind == TABLE_LEAF:
            return number, low, high
        if kind != TABLE_NODE:
            break
        number, above, upto = raw.branch_for(number, row_id)
        low, high = low if above is None else above, high if upto is None else upto
    raise Unreadable("the way to a row is damaged")


def entries(raw: RawPages, root: int, key: str | bytes) -> Iterator[list[Value]]:
    """Yield the entries of an index whose first column is the key.  Raises Unreadable."""
    return (entry for _, entry in found_in(raw, root, key))


def found_in(raw: RawPages, root: int, key: str | bytes, depth: int = 0) -> Iterator[tuple[int, list[Value]]]:
    """Yield the same with the page that each is in.  Raises Unreadable."""
    kind = raw.kind(root)
    if depth > _DEPTH_LIMIT or kind not in (INDEX_LEAF, INDEX_NODE):
        raise Unreadable("the way to an entry is damaged")
    wanted = _rank(key)
    rows = list(raw.rows(root))
    if None in rows:
        raise Unreadable("an entry is damaged")
    ranks = [_rank(row[1][0]) for row in rows if row is not None]
    for row, rank in zip(rows, ranks, strict=True):
        if rank == wanted and row is not None:
            yield root, row[1]
    if kind == INDEX_NODE:
        children = [child for child, _ in raw.branches(root)]
        for child, low, high in zip(children, [None, *ranks], [*ranks, None], strict=True):
            if (low is None or low <= wanted) and (high is None or wanted <= high):
                yield from found_in(raw, child, key, depth + 1)


def _rank(value: Value) -> tuple[int, int | float | bytes]:
    """Return what orders values as an index does."""
    if value is None:
        return (0, 0)
    if isinstance(value, bytes):
        return (3, value)
    if isinstance(value, str):
        return (2, value.encode())
    return (1, value)
