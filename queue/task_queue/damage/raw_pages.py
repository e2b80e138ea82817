"""A database file page by page, with its log laid over it: which pages belong to which tree, and their rows.

Nothing here trusts the tree from above: each page is found by the pointer map, which names its parent, so
that a page is read although the one that leads to it is not. A page that is free, or was left by a tree, is
no one's: what it still holds was deleted or lives elsewhere by now. Knows no table.
"""

from __future__ import annotations

import os
import struct
from array import array
from bisect import bisect_left
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from types import TracebackType
from typing import Self

from task_queue.damage.log_frames import read_log
from task_queue.records import Unreadable, Value, record, varint

#: Kinds of pages in the pointer map.
_ROOT, _FREE, _OVERFLOW_FIRST, _OVERFLOW, _BRANCH = 1, 2, 3, 4, 5
_TREE = (_ROOT, _BRANCH)
#: First bytes of the pages of a tree.
INDEX_NODE, TABLE_NODE, INDEX_LEAF, TABLE_LEAF = 2, 5, 10, 13
#: The page at this offset is used for locks only.
_LOCK_BYTE = 0x40000000
#: A larger row is no row of ours, bytes.
_ROW_LIMIT = 32 * 1024 * 1024
_DEPTH_LIMIT = 24
_ENTRY = struct.Struct(">BI")
_NOBODY = 0xFFFFFFFF


class RawPages:
    """The pages of one database, as its last commit left them. For reading only; close it."""

    def __init__(self, path: Path, page_bytes: int) -> None:
        """Open the file beside its log.  Raises OSError."""
        self._size = page_bytes
        log = read_log(path.with_name(path.name + "-wal"), page_bytes)
        self._laid_over = {frame.page: frame.content for frame in log.frames if frame.page > 0}
        self._file = os.open(path, os.O_RDONLY | os.O_CLOEXEC) if path.exists() else -1
        in_file = -(-os.fstat(self._file).st_size // page_bytes) if self._file >= 0 else 0
        after_log = log.frames[-1].size if log.frames else 0
        self.count = min(after_log, max(in_file, *self._laid_over)) if after_log else in_file
        self._kinds, self._parents = bytearray(self.count + 1), array("I", bytes(4 * (self.count + 1)))
        self._read_map()
        self._owners = array("I", bytes(4 * (self.count + 1)))  #: root by page, as far as it was asked for

    def __enter__(self) -> Self:
        """Return the open file."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it."""
        self.close()

    def close(self) -> None:
        """Close the file. A second call does nothing."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def page(self, number: int) -> bytes:
        """Return a page; what the disk does not give of it is zero."""
        laid_over = self._laid_over.get(number)
        if laid_over is not None:
            return laid_over
        try:
            found = os.pread(self._file, self._size, (number - 1) * self._size) if self._file >= 0 else b""
        except OSError:  # a sector that cannot be read: the others can
            found = b""
        return found.ljust(self._size, b"\0")

    # --- which pages belong to whom

    def _map_page(self, number: int) -> int:
        """Return the page of the pointer map that tells of this one."""
        stride = self._size // 5 + 1
        page = (number - 2) // stride * stride + 2
        return page + 1 if page == _LOCK_BYTE // self._size + 1 else page

    def _read_map(self) -> None:
        """Take over the pointer map: five bytes for each page behind a page of the map."""
        stride = self._size // 5
        at = 2
        while at <= self.count:
            told = min(stride, self.count - at)
            page = self.page(self._map_page(at))
            entries = list(_ENTRY.iter_unpack(page[: 5 * told]))
            sound = [(kind, parent) if self._is_sound(kind, parent) else (0, 0) for kind, parent in entries]
            self._kinds[at + 1 : at + 1 + told] = bytes(kind for kind, _ in sound)
            parents = array("I", [parent for _, parent in sound])
            self._parents[at + 1 : at + 1 + told] = parents
            at += stride + 1

    def _is_sound(self, kind: int, parent: int) -> bool:
        """Decide whether an entry is one that there is: only roots and free pages have no page above them."""
        return parent == 0 if kind in (_ROOT, _FREE) else kind <= _BRANCH and 0 < parent <= self.count

    def has_unexplained(self) -> bool:
        """Decide whether there is a page of which the map says nothing sensible."""
        if self.count < 3:
            return False
        maps = len(range(2, self.count + 1, self._size // 5 + 1))
        told = sum(self._kinds.count(kind) for kind in range(_ROOT, _BRANCH + 1))
        return told + maps + 1 < self.count or any(
            kind == _BRANCH and not self.owner(number) for number, kind in enumerate(self._kinds)
        )

    def believe_roots(self, upto: int) -> list[int]:
        """Return the roots of all trees: what the map says, and pages up to here of which it says nothing.

        A database that gives space back keeps its roots in front of all other pages.
        """
        for number in range(3, min(upto, self.count) + 1):
            if not _ROOT <= self._kinds[number] <= _BRANCH and self._map_page(number) != number:
                self._kinds[number] = _ROOT
        return [number for number in range(3, self.count + 1) if self._kinds[number] == _ROOT]

    def adopt(self, roots: Iterator[int] | tuple[int, ...]) -> None:
        """Add the pages that a tree leads to though the pointer map says nothing sensible of them."""
        nodes = set(self._parents)
        pending = [root for root in roots if 0 < root <= self.count]
        for root in pending:
            self._kinds[root] = _ROOT
        self._forget_owners()
        seen = set(pending)
        while pending:
            node = pending.pop()
            for child in self._below(node):
                if child in seen or not 2 < child <= self.count:
                    continue
                seen.add(child)
                is_explained = self._is_explained(child)
                if child in nodes or not is_explained:
                    pending.append(child)
                if not is_explained and self._may_be_child(child, node):
                    self._kinds[child], self._parents[child] = _BRANCH, node
        self._forget_owners()

    def _forget_owners(self) -> None:
        self._owners = array("I", bytes(4 * (self.count + 1)))

    def _is_explained(self, number: int) -> bool:
        return self._kinds[number] == _BRANCH and self._parents[number] > 0 and self.owner(number) > 0

    def _may_be_child(self, number: int, parent: int) -> bool:
        """Decide whether a pointer from above may be believed: a free page is not taken back into a tree."""
        kind, said = self._kinds[number], self._parents[number]
        is_free = kind == _FREE and said == 0
        is_other = kind in (_OVERFLOW_FIRST, _OVERFLOW, _BRANCH) and said != parent and self.owner(said) > 0
        return not is_free and not is_other

    def owner(self, number: int) -> int:
        """Return the root of the tree that a page belongs to, 0 when it belongs to none."""
        path: list[int] = []
        at = number
        while at and not self._owners[at] and len(path) <= _DEPTH_LIMIT:
            path.append(at)
            if at == 1 or self._kinds[at] == _ROOT:
                break
            at = self._parents[at] if self._kinds[at] == _BRANCH else 0
        is_root = at > 0 and (at == 1 or self._kinds[at] == _ROOT)
        root = self._owners[at] or (at if is_root else _NOBODY)
        for step in path:
            self._owners[step] = root
        return 0 if root == _NOBODY else root

    def trees(self) -> dict[int, array[int]]:
        """Return the pages of every tree, by its root, in their order."""
        trees: dict[int, array[int]] = {}
        for number in range(1, self.count + 1):
            root = self.owner(number) if number == 1 or self._kinds[number] in _TREE else 0
            if root:
                trees.setdefault(root, array("I")).append(number)
        return trees

    def branch_for(self, number: int, row_id: int) -> tuple[int, int | None, int | None]:
        """Return the page below a page of a table for a row, and above which and up to which id it has rows.

        None: the page itself does not say.
        """
        page, head = self.page(number), _head_of(number)
        cells = self._cells(page, head, 12)
        at = bisect_left(cells, row_id, key=lambda cell: varint(page, cell + 4)[0])
        low = varint(page, cells[at - 1] + 4)[0] if at else None
        if at == len(cells):
            return int.from_bytes(page[head + 8 : head + 12], "big"), low, None
        return int.from_bytes(page[cells[at] : cells[at] + 4], "big"), low, varint(page, cells[at] + 4)[0]

    def _below(self, number: int) -> list[int]:
        try:
            return [child for child, _ in self.branches(number)]
        except Unreadable:
            return []

    # --- what is in a page

    def kind(self, number: int) -> int:
        """Return the first byte of a page of a tree, which says what it holds."""
        return self.page(number)[_head_of(number)]

    def branches(self, number: int) -> Iterator[tuple[int, int | None]]:
        """Yield the pages below a page, with the highest row id in each; None where it is not said."""
        page, head = self.page(number), _head_of(number)
        if page[head] not in (INDEX_NODE, TABLE_NODE):
            return
        for at in self._cells(page, head, 12):
            key = varint(page, at + 4)[0] if page[head] == TABLE_NODE else None
            yield int.from_bytes(page[at : at + 4], "big"), key
        yield int.from_bytes(page[head + 8 : head + 12], "big"), None

    def _cells(self, page: bytes, head: int, head_bytes: int) -> list[int]:
        """Return where the cells of a page begin; pointers out of bounds are left out."""
        count = int.from_bytes(page[head + 3 : head + 5], "big")
        first = head + head_bytes
        count = min(count, (self._size - first) // 2)
        found = [int.from_bytes(page[at : at + 2], "big") for at in range(first, first + 2 * count, 2)]
        return [at for at in found if first <= at < self._size - 3]

    def rows(self, number: int, *, in_any_order: bool = False) -> Iterator[tuple[int, list[Value]] | None]:
        """Yield the rows of a page with their row ids (0 in an index), None for one that is unreadable.

        in_any_order: also those of a table whose ids are out of order.
        """
        page, head = self.page(number), _head_of(number)
        kind = page[head]
        if kind not in (TABLE_LEAF, INDEX_LEAF, INDEX_NODE):
            return
        found: list[tuple[int, list[Value]] | None] = []
        for at in self._cells(page, head, 12 if kind == INDEX_NODE else 8):
            try:
                found.append(
                    self._row(number, page, at + 4 if kind == INDEX_NODE else at, is_table=kind == TABLE_LEAF)
                )
            except Unreadable:
                found.append(None)
        if kind == TABLE_LEAF and not in_any_order:
            in_order = _longest_ascent([row[0] for row in found if row is not None])
            found = [row if row is not None and row[0] in in_order else None for row in found]
        yield from found

    def _row(self, number: int, page: bytes, at: int, *, is_table: bool) -> tuple[int, list[Value]]:
        size, at = varint(page, at)
        row_id, at = varint(page, at) if is_table else (0, at)
        if not 0 < size <= _ROW_LIMIT:
            raise Unreadable("a row of an impossible size")
        here = self._bytes_here(size, is_table=is_table)
        payload = page[at : at + here]
        if here < size:
            overflow = int.from_bytes(page[at + here : at + here + 4], "big")
            payload += self._overflow(number, overflow, size - here)
        return row_id, record(payload)

    def _bytes_here(self, size: int, *, is_table: bool) -> int:
        """Return how much of a row lies in its page, by SQLite's rule."""
        usable = self._size
        most = usable - 35 if is_table else (usable - 12) * 64 // 255 - 23
        if size <= most:
            return size
        least = (usable - 12) * 32 // 255 - 23
        here = least + (size - least) % (usable - 4)
        return here if here <= most else least

    def _overflow(self, owner: int, number: int, size: int) -> bytes:
        pieces: list[bytes] = []
        wanted, before = _OVERFLOW_FIRST, owner
        while size > 0:
            if not 2 < number <= self.count:
                raise Unreadable("a row goes on outside the file")
            if self._kinds[number] in (*_TREE, _FREE) or (
                self._kinds[number] == wanted and self._parents[number] != before
            ):
                raise Unreadable("a row goes on in a page of another")
            page = self.page(number)
            pieces.append(page[4 : 4 + min(size, self._size - 4)])
            size -= self._size - 4
            wanted, before, number = _OVERFLOW, number, int.from_bytes(page[:4], "big")
        return b"".join(pieces)


def _longest_ascent(ids: list[int]) -> set[int]:
    """Return the most ids of a page that are in order: any other was hit, and may be another row's."""
    if all(low < high for low, high in pairwise(ids)):
        return set(ids)
    ends: list[int] = []  #: the lowest id in which an ascent of each length ends
    ascents: list[list[int]] = []
    for each in ids:
        length = bisect_left(ends, each)
        ascent = [*(ascents[length - 1] if length else []), each]
        ends[length:] = [each, *ends[length + 1 :]]
        ascents[length:] = [ascent, *ascents[length + 1 :]]
    return set(ascents[-1])


def _head_of(number: int) -> int:
    return 100 if number == 1 else 0
