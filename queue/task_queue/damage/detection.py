"""Whether a database may be trusted, told before anything is written to it. Owns what is looked at.

What is looked at here does not grow with the queue; the whole file is gone through later, in idle moments.
"""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path
from typing import Any

import apsw

from skerry.database import open_read_only, pragma, translated, upgrade
from skerry.errors import StoreDamaged
from task_queue.damage.log_frames import FRAME_HEAD_BYTES, HEADER_BYTES, goes_on_behind, pages_in, read_log
from task_queue.damage.remains import MARK, Shape, shapes
from task_queue.limits import Synchronous
from task_queue.migrations import schema

#: Rows of each table that are read from either end.
_SAMPLE = 16

_Item = tuple[str, str, str]


def look(path: Path, synchronous: Synchronous = "full") -> None:
    """Raise StoreDamaged when the database, or its log, is not what a power cut leaves.

    synchronous: how commits were synced; with "normal" a cut may tear the log anywhere behind its last sync.
    """
    log = path.with_name(path.name + "-wal")
    if not path.exists() or path.stat().st_size == 0:
        if log.exists() and log.stat().st_size > HEADER_BYTES + FRAME_HEAD_BYTES:
            raise StoreDamaged(f"{path} is empty, though its log is not", path=path)
        if path.exists() and any(path.parent.glob(path.name + ".*")):  # a store has been here
            raise StoreDamaged(f"{path} is empty", path=path)
        return
    with translated(path):
        db = open_read_only(path)
        try:
            _look(db, path, log, synchronous)
        except (apsw.SQLError, apsw.FullError) as error:
            # A name that the schema should have; a row of an impossible size: nothing is written here.
            raise StoreDamaged(f"{path}: {error}", path=path) from error
        finally:
            db.close()


def _look(db: apsw.Connection, path: Path, log: Path, synchronous: Synchronous) -> None:
    version = _version(db, path)
    if version == 0:
        if db.execute("SELECT count(*) FROM sqlite_schema").fetchall() != [(0,)]:
            raise StoreDamaged(f"{path} has tables, but no schema version", path=path)
        return
    if version > len(schema_items()):
        return  # refused by whoever opens it
    size, pages = pragma(db, "page_size"), pragma(db, "page_count")
    _look_at_size(path, log, size, pages)
    if synchronous == "full":
        _look_at_log(path, log, size)
    _look_at_schema(db, path, version)
    _look_at_trees(db, path)


def _version(db: apsw.Connection, path: Path) -> int:
    said, marked = pragma(db, "user_version"), pragma(db, "application_id")
    if marked & ~0xFF == MARK and (said ^ marked & 0xFF).bit_count() == 1:
        raise StoreDamaged(f"{path}: its header contradicts itself on the schema version", path=path)
    return said


def _look_at_size(path: Path, log: Path, size: int, pages: int) -> None:
    in_file = path.stat().st_size // size
    if in_file >= pages:
        return
    in_log = pages_in(log, size)
    missing = next((page for page in range(in_file + 1, pages + 1) if page not in in_log), 0)
    if missing:
        raise StoreDamaged(f"{path} ends before page {missing} of {pages}", path=path)


def _look_at_log(path: Path, log: Path, size: int) -> None:
    """SQLite passes over commits behind a damaged frame and says nothing."""
    if goes_on_behind(log, size, _valid_frames(path)) and read_log(log, size).is_damaged:
        raise StoreDamaged(f"{path}: its log is damaged before its last commit", path=path)


def _valid_frames(path: Path) -> int:
    """Return how many frames of the log SQLite takes: the index that it has just made says so."""
    try:
        with path.with_name(path.name + "-shm").open("rb") as index:
            head = index.read(20)
    except FileNotFoundError:
        return 0
    return int.from_bytes(head[16:20], sys.byteorder)


def _look_at_schema(db: apsw.Connection, path: Path, version: int) -> None:
    found = set(_items(db))
    missing = schema_items()[version - 1] - found
    if missing:
        raise StoreDamaged(
            f"{path}: the schema lacks or distorts {sorted(name for _, name, _ in missing)}", path=path
        )


def _look_at_trees(db: apsw.Connection, path: Path) -> None:
    for kind, name in db.execute("SELECT type, name FROM sqlite_schema WHERE rootpage > 0").fetchall():
        found = db.execute("SELECT pagetype FROM dbstat WHERE name = ? LIMIT 1", (name,)).fetchall()
        if found and found[0][0] not in ("leaf", "internal"):
            raise StoreDamaged(f"{path}: the first page of {kind} {name} cannot be read", path=path)
    for shape in shapes(db).values():
        key = "rowid" if shape.has_row_ids else f'"{shape.columns[0].name}"'
        for order in ("ASC", "DESC"):
            db.execute(f'SELECT * FROM "{shape.table}" ORDER BY {key} {order} LIMIT {_SAMPLE}').fetchall()
    db.execute(f"SELECT * FROM task ORDER BY task_id DESC LIMIT {_SAMPLE}").fetchall()
    has_tasks = db.execute("SELECT 1 FROM task LIMIT 1").fetchall()
    rows: list[tuple[Any, ...]] = db.execute(
        "SELECT id, typeof(epoch), typeof(session) FROM store"
    ).fetchall()
    if has_tasks and not rows:
        raise StoreDamaged(f"{path}: the store's own row is gone", path=path)
    if rows and rows != [(1, "text", "integer")]:  # else another would be made beside what is there
        raise StoreDamaged(f"{path}: the store's own row is not what it was", path=path)


# --- what each version of the schema is made of


@cache
def schema_items() -> tuple[frozenset[_Item], ...]:
    """Return the tables and indexes of each schema version, with their text; the first version first."""
    return tuple(items for items, _ in _versions())


@cache
def schema_shapes() -> tuple[dict[str, Shape], ...]:
    """Return the tables of each schema version; the first version first."""
    return tuple(found for _, found in _versions())


@cache
def _versions() -> tuple[tuple[frozenset[_Item], dict[str, Shape]], ...]:
    steps = schema()
    found: list[tuple[frozenset[_Item], dict[str, Shape]]] = []
    for count in range(1, len(steps) + 1):
        db = apsw.Connection(":memory:", flags=apsw.SQLITE_OPEN_READWRITE)
        try:
            upgrade(db, steps[:count])
            found.append((frozenset(_items(db)), shapes(db)))
        finally:
            db.close()
    return tuple(found)


def _items(db: apsw.Connection) -> list[_Item]:
    rows: list[tuple[Any, ...]] = db.execute(
        "SELECT type, name, coalesce(sql, '') FROM sqlite_schema"
    ).fetchall()
    return [(kind, name, text) for kind, name, text in rows if not name.startswith("sqlite_stat")]
