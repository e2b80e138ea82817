"""What a damaged file still says of its own schema: which tables it has, and where each begins.

Where the schema's own page is unreadable, tables are known by the shape of their rows.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import apsw

from task_queue.damage.raw_pages import INDEX_LEAF, INDEX_NODE, TABLE_LEAF, TABLE_NODE, RawPages
from task_queue.records import Value

#: What each declared type may hold in a record; a whole number in a REAL column is stored as one.
_HOLDS: dict[str, tuple[type, ...]] = {
    "INTEGER": (int,),
    "REAL": (float, int),
    "TEXT": (str,),
    "BLOB": (bytes,),
}
_SAMPLE = 40
_KINDS = {INDEX_LEAF, INDEX_NODE, TABLE_LEAF, TABLE_NODE}
#: Indexes that name tasks, and what their entries look like beside the row's number.
BY_ID, BY_KEY = "sqlite_autoindex_task_1", "task_request"
_ENTRIES: dict[str, Callable[[list[Value]], bool]] = {
    BY_ID: lambda row: isinstance(row[0], bytes) and len(row[0]) == 16,
    BY_KEY: lambda row: isinstance(row[0], str) and "\n" in row[0],  # a tenant and a key
}
#: In the header, with the schema's version in its lowest byte: a version that a flipped bit made up is seen.
MARK = 0x534B5100


@dataclass(frozen=True)
class Column:
    """One column of a table."""

    name: str
    holds: tuple[type, ...]
    is_required: bool
    is_row_id: bool = False  #: its value is the row's own number


@dataclass(frozen=True)
class Shape:
    """A table's columns in the order in which its records have them."""

    table: str
    columns: tuple[Column, ...]
    has_row_ids: bool

    def row(self, row_id: int, values: Sequence[Value]) -> list[Value] | None:
        """Return a row's values by column, None when they cannot be this table's."""
        if not 0 < len(values) <= len(self.columns):
            return None
        row = list(values)
        for index, (column, value) in enumerate(zip(self.columns, values, strict=False)):
            if column.is_row_id:
                row[index] = row_id
            elif value is None:
                if column.is_required:
                    return None
            elif type(value) not in column.holds or (isinstance(value, str) and "\0" in value):
                return None  # zeros in a text are what a file has that was cut short
        return row


@dataclass
class Remains:
    """Where the trees of a file begin. names: the tables found in its schema."""

    version: int
    roots: dict[str, int] = field(default_factory=dict)  #: of tables and indexes, by name
    pages: dict[int, array[int]] = field(default_factory=dict)  #: of every tree, by root

    def of(self, name: str) -> array[int]:
        """Return the pages of a table or an index."""
        return self.pages.get(self.roots.get(name, 0), array("I"))


def shapes(db: apsw.Connection) -> dict[str, Shape]:
    """Return the tables of a database, by name."""
    found: dict[str, Shape] = {}
    rows: list[tuple[Any, ...]] = db.execute("PRAGMA main.table_list").fetchall()
    for _, name, kind, _, is_without, _ in rows:
        if kind == "table" and not name.startswith("sqlite_"):
            found[name] = _shape(db, name, has_row_ids=not is_without)
    return found


def _shape(db: apsw.Connection, table: str, *, has_row_ids: bool) -> Shape:
    info: list[tuple[Any, ...]] = db.execute(f'PRAGMA table_info("{table}")').fetchall()
    if not has_row_ids:  # the key's columns come first, in the key's order
        info = sorted((row for row in info if row[5]), key=lambda row: row[5]) + [r for r in info if not r[5]]
    return Shape(
        table,
        tuple(
            Column(
                name,
                _HOLDS.get(declared, (int, float, str, bytes)),
                bool(required) or bool(in_key and not has_row_ids),
                is_row_id=has_row_ids and bool(in_key) and declared == "INTEGER",
            )
            for _, name, declared, required, _, in_key in info
        ),
        has_row_ids,
    )


def remains_of(raw: RawPages, versions: Sequence[dict[str, Shape]], trees: int = 0) -> Remains:
    """Return what is left of a file's schema.

    versions: the tables of each version, the first first.  trees: tables and indexes of the newest.
    """
    named = dict(_named_roots(raw))
    if raw.has_unexplained():
        raw.adopt(tuple({1, *named.values(), *raw.believe_roots(trees + 2)}))
    pages = raw.trees()
    version = _said_version(raw, named, versions)
    if version:
        return _guess_roots(raw, Remains(version, named, pages), versions[version - 1])
    each = (Remains(version, dict(named), pages) for version in range(len(versions), 0, -1))
    told = [_guess_roots(raw, remains, versions[remains.version - 1]) for remains in each]
    return max(told, key=lambda remains: len(remains.roots.keys() & versions[remains.version - 1].keys()))


def _named_roots(raw: RawPages) -> Iterator[tuple[str, int]]:
    for number in raw.trees().get(1, ()):
        for row in raw.rows(number, in_any_order=True):
            if row is not None and len(row[1]) == 5:
                kind, name, _, root, _ = row[1]
                if (
                    kind in ("table", "index")
                    and isinstance(name, str)
                    and isinstance(root, int)
                    and root > 1
                ):
                    yield name, root


def _said_version(raw: RawPages, named: dict[str, int], versions: Sequence[dict[str, Shape]]) -> int:
    """Return the schema version that the header says twice, or with every table of it; 0 when it does not."""
    header = raw.page(1)
    said, marked = (int.from_bytes(header[at : at + 4], "big") for at in (60, 68))
    if not 1 <= said <= len(versions):
        return 0
    return said if marked == MARK | said or named.keys() >= versions[said - 1].keys() else 0


def _guess_roots(raw: RawPages, remains: Remains, known: dict[str, Shape]) -> Remains:
    """Find the tables that the schema does not name, or names wrongly, among the trees of no known name."""
    missing = [shape for name, shape in known.items() if not remains.of(name)]
    claimed = {1, *(root for name, root in remains.roots.items() if name in known or name in _ENTRIES)}
    for root, pages in remains.pages.items():
        if root in claimed:
            continue
        for name, is_entry in _ENTRIES.items():
            if not remains.of(name) and _is_index(raw, pages, is_entry):
                remains.roots[name] = root
        fitting = [shape for shape in missing if _fits(raw, pages, shape)]
        if len(fitting) == 1:
            remains.roots[fitting[0].table] = root
            missing.remove(fitting[0])
    return remains


def _is_index(raw: RawPages, pages: array[int], is_entry: Callable[[list[Value]], bool]) -> bool:
    """Decide by a sample whether a tree is an index whose entries are told apart so."""
    kinds = {raw.kind(page) for page in pages[:_SAMPLE]} & _KINDS
    if not kinds <= {INDEX_LEAF, INDEX_NODE}:
        return False
    rows = [row[1] for page in pages[:_SAMPLE] for row in raw.rows(page) if row is not None][:_SAMPLE]
    return bool(rows) and all(len(row) == 2 and isinstance(row[1], int) and is_entry(row) for row in rows)


def _fits(raw: RawPages, pages: array[int], shape: Shape) -> bool:
    """Decide whether a sample of a tree's rows could be a table's, most of them."""
    seen = fitting = 0
    for number in pages:
        kind = raw.kind(number)
        if kind not in _KINDS:
            continue  # it cannot be read: the others tell
        if (kind in (TABLE_LEAF, TABLE_NODE)) != shape.has_row_ids:
            return False
        for row in raw.rows(number):
            seen += 1
            if row is not None and len(row[1]) == len(shape.columns) and shape.row(*row) is not None:
                fitting += 1
            if seen >= _SAMPLE:
                return fitting * 2 > seen
    return fitting * 2 > seen
