"""From a database that was set aside to a fresh one in its place, which says what is yet to be brought over.

Owns what a fresh store takes over at once: the clock, the session and the numbers, never the stream's epoch.
"""

from __future__ import annotations

import secrets
from contextlib import suppress
from pathlib import Path
from typing import Any

import apsw
import msgspec

from skerry.database import translated, upgrade
from skerry.durable import sync
from task_queue import quarantine
from task_queue.damage import MARK, PAGE_BYTES, schema_shapes
from task_queue.migrations import schema
from task_queue.quarantine import Copy
from task_queue.raw_pages import RawPages
from task_queue.remains import Remains, remains_of
from task_queue.rows import Book
from task_queue.salvage import PROGRESS, Progress, Salvage

_COUNTERS = ("by_state", "outbox", "outbox_seq", "trimmed", "by_class")
#: Left between the numbers of the old rows and of new ones: those of its last commits may be lost.
_GAP = 1000


def start_over(path: Path, copy: Copy, *, wall_s: float, book: Book | None = None, session: int = 0) -> None:
    """Put a fresh database in the place of one that was set aside; a power cut before its end is harmless.

    book, session: of the store that was open when the damage was found; read from the copy otherwise.
    Raises StorageFailed.
    """
    fresh = path.with_name(path.name + ".fresh")
    with translated(path):
        for leftover in path.parent.glob(fresh.name + "*"):
            leftover.unlink()
        _bring_up_to_date(copy)
        with RawPages(source_of(copy), PAGE_BYTES) as raw:
            remains = remains_of(raw, schema_shapes())
            if book is None:
                book, session = _old_store(raw, remains, wall_s)
        _make(fresh, copy, book, session)
        fresh.rename(path)
        quarantine.replaced(path)


def open_salvage(path: Path, db: apsw.Connection, *, session: int) -> Salvage | None:
    """Return the salvage that the open store has not finished, None without one."""
    with translated(path):
        found: list[tuple[Any, ...]] = db.execute(
            "SELECT value FROM meta WHERE name = ?", (PROGRESS,)
        ).fetchall()
        if not found:
            return None
        progress = msgspec.json.decode(found[0][0], type=Progress)
        copy = Copy(path.parent / quarantine.FOLDER / progress.copy, path.name)
        raw = RawPages(source_of(copy), PAGE_BYTES)
        shapes = schema_shapes()
        remains = remains_of(raw, shapes)
        return Salvage(copy, progress, raw, remains, db=db, shapes=shapes[-1], session=session)


def source_of(copy: Copy) -> Path:
    """Return the file that rows come from: the copy, or what was made of one with an old schema."""
    upgraded = _upgraded(copy)
    return upgraded if upgraded.exists() else copy.database


def _upgraded(copy: Copy) -> Path:
    return copy.folder / f"upgraded-{copy.file}"


# --- the fresh store


def _make(fresh: Path, copy: Copy, book: Book, session: int) -> None:
    progress = Progress(
        copy=copy.name,
        session=session,
        expected={"task": sum(book.by_state.values()), "outbox": sum(book.outbox.values())},
        trimmed=dict(book.trimmed),
    )
    for name in _COUNTERS:
        setattr(book, name, {})
    book.seq, book.event, book.remembered = book.seq + _GAP, book.event + _GAP, 0
    db = _create(fresh, len(schema()))
    try:
        with db:
            db.execute(
                "INSERT INTO store (id, epoch, session, book) VALUES (1, ?, ?, ?)",
                (secrets.token_hex(8), session, msgspec.json.encode(book).decode()),
            )
            value = msgspec.json.encode(progress)
            db.execute("INSERT INTO meta (name, value) VALUES (?, ?)", (PROGRESS, value))
    finally:
        db.close()
    fresh.chmod(0o600)
    sync(fresh)


def _create(path: Path, version: int) -> apsw.Connection:
    db = apsw.Connection(str(path))
    db.execute("PRAGMA auto_vacuum = INCREMENTAL").fetchall()
    db.execute("PRAGMA synchronous = OFF").fetchall()  # it is synced as a whole, at the end
    upgrade(db, schema()[:version])
    db.execute(f"PRAGMA application_id = {MARK | version}").fetchall()
    return db


def _old_store(raw: RawPages, remains: Remains, wall_s: float) -> tuple[Book, int]:
    """Return the book and the session that the old file holds, or what is on the safe side of both."""
    for page in remains.of("store"):
        for row in raw.rows(page):
            with suppress(msgspec.DecodeError, ValueError, TypeError):
                if row is not None:
                    _, _, session, text = row[1]
                    book = msgspec.json.decode(str(text), type=Book)
                    if isinstance(session, int):
                        return book, session
    # Numbers above any that were given out; a clock no later than it was, so that nothing expires early.
    above = int(max(wall_s, 0.0) * 1e6) + (1 << 40)
    return Book(seq=above, event=above, powered_s=_latest_end(raw, remains)), 0


def _latest_end(raw: RawPages, remains: Remains) -> float:
    ends = (row[1][0] for page in remains.of("task_ended") for row in raw.rows(page) if row is not None)
    return max((float(end) for end in ends if isinstance(end, int | float)), default=0.0)


# --- a copy with an old schema


def _bring_up_to_date(copy: Copy) -> None:
    """Make a copy of what is readable that has the newest schema, when the damaged file has an older one."""
    shapes = schema_shapes()
    target = _upgraded(copy)
    if target.exists():
        return
    beside = target.with_name(target.name + ".part")
    beside.unlink(missing_ok=True)
    with RawPages(copy.database, PAGE_BYTES) as raw:
        remains = remains_of(raw, shapes)
        if remains.version == len(shapes):
            return
        db = _create(beside, remains.version)
        try:
            with db:
                _copy_rows(raw, remains, db)
            _complete(db)
            upgrade(db, schema())
        finally:
            db.close()
    sync(beside)
    beside.rename(target)
    sync(target.parent)


def _copy_rows(raw: RawPages, remains: Remains, db: apsw.Connection) -> None:
    for table, shape in schema_shapes()[remains.version - 1].items():
        for page in remains.of(table):
            for found in raw.rows(page):
                row = None if found is None else shape.row(*found)
                if row is not None:
                    names = ", ".join(f'"{column.name}"' for column in shape.columns[: len(row)])
                    marks = ", ".join("?" * len(row))
                    db.execute(f'INSERT OR IGNORE INTO "{table}" ({names}) VALUES ({marks})', row)


def _complete(db: apsw.Connection) -> None:
    """Give an old schema's steps what they rely on: the store's own row, with a book."""
    book = msgspec.json.encode(Book()).decode()
    db.execute(
        "INSERT OR IGNORE INTO store (id, epoch, session, book) VALUES (1, ?, 0, ?)",
        (secrets.token_hex(8), book),
    )
    db.execute("UPDATE store SET book = ? WHERE NOT json_valid(book)", (book,))
