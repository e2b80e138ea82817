"""From a database that was set aside to a fresh one in its place, which says what is yet to be brought over.

Owns what a fresh store takes over at once: the clock, the session and the numbers, never the stream's epoch.
"""

from __future__ import annotations

import secrets
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, cast

import apsw
import msgspec

from skerry.database import translated, upgrade
from skerry.decoding import MALFORMED
from skerry.durable import sync
from skerry.errors import StoreDamaged
from task_queue.damage import quarantine
from task_queue.damage.detection import schema_items, schema_shapes
from task_queue.damage.old_file import OldFile
from task_queue.damage.page_size import page_bytes_of, settings_of_new
from task_queue.damage.quarantine import Copy
from task_queue.damage.raw_pages import RawPages
from task_queue.damage.remains import MARK, Remains, remains_of
from task_queue.damage.salvage import EPOCHS, PROGRESS, Salvage
from task_queue.damage.salvage_progress import Progress
from task_queue.migrations import schema
from task_queue.rows import Book, book_of, sealed_book

_COUNTERS = ("by_state", "outbox", "outbox_seq", "trimmed", "by_class")
#: Left between the numbers of the old rows and of new ones: those of its last commits may be lost.
_GAP = 1000
_EPOCHS_KEPT = 8
#: Values of the old store that the new one begins with.
_TAKEN_OVER: dict[Any, Any] = {PROGRESS: Progress, EPOCHS: list[str]}


class OldStore(NamedTuple):
    """What a store hands on to the one that takes its place."""

    book: Book
    session: int
    epoch: str


def start_over(path: Path, copy: Copy, *, wall_s: float, store: OldStore | None = None) -> None:
    """Put a fresh database in the place of one that was set aside; a power cut before its end is harmless.

    store: the one that was open when the damage was found; read from the copy otherwise.
    Raises StorageFailed.
    """
    fresh = path.with_name(path.name + ".fresh")
    with translated(path):
        for leftover in path.parent.glob(fresh.name + "*"):
            leftover.unlink()
        raw, remains = _open(copy)
        try:
            if remains.version < len(schema()):
                _bring_up_to_date(copy, raw, remains)
                raw.close()
                raw, remains = _open(copy)
            store = store or _old_store(raw, remains, wall_s)
            before = _meta(raw, remains)
        finally:
            raw.close()
        _make(fresh, copy, store, before)
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
        books: list[tuple[Any, ...]] = db.execute("SELECT book FROM store").fetchall()
        sealed = book_of(books[0][0].encode()).salvage  # it would show if this were not as it was written
        progress = _progress_of(found[0][0] if sealed is None else msgspec.json.encode(sealed), path)
        return _salvage(path, db, progress, session)


def _salvage(path: Path, db: apsw.Connection, progress: Progress, session: int) -> Salvage:
    """Return the salvage that has come so far, with those that go on after it."""
    then, older = progress.then, None
    if then is not None:
        older = _salvage(path, db, _progress_of(msgspec.json.encode(then), path), session)
    copy = Copy(path.parent / quarantine.FOLDER / progress.copy, path.name)
    raw, remains = _open(copy)
    shapes = schema_shapes()[-1]
    return Salvage(progress, OldFile(raw, remains), db=db, shapes=shapes, session=session, older=older)


def _progress_of(value: bytes, path: Path) -> Progress:
    try:
        return msgspec.json.decode(value, type=Progress)
    except MALFORMED as error:
        raise StoreDamaged(
            f"{path}: how far a salvage has come cannot be read: {error}", path=path
        ) from error


def _open(copy: Copy) -> tuple[RawPages, Remains]:
    """Open the file that rows come from: the copy, or what was made of one with an old schema."""
    upgraded = _upgraded(copy)
    source = upgraded if upgraded.exists() else copy.database
    raw = RawPages(source, page_bytes_of(source))
    try:
        return raw, remains_of(raw, schema_shapes(), len(schema_items()[-1]))
    except BaseException:
        raw.close()
        raise


def _upgraded(copy: Copy) -> Path:
    return copy.folder / f"upgraded-{copy.file}"


# --- the fresh store


def _make(fresh: Path, copy: Copy, store: OldStore, before: dict[str, Any]) -> None:
    book, session, epoch = store
    epochs = [*before.get(EPOCHS, ()), epoch][-_EPOCHS_KEPT:]
    progress = Progress(
        copy=copy.name,
        session=session,
        expected={"task": sum(book.by_state.values()), "outbox": sum(book.outbox.values())},
        trimmed=dict(book.trimmed),
        then=book.salvage or before.get(PROGRESS),
    )
    book.salvage = msgspec.to_builtins(progress)
    for name in _COUNTERS:
        setattr(book, name, {})
    book.seq, book.event, book.remembered = book.seq + _GAP, book.event + _GAP, 0
    db = _create(fresh, len(schema()))
    try:
        with db:
            db.execute(
                "INSERT INTO store (id, epoch, session, book) VALUES (1, ?, ?, ?)",
                (secrets.token_hex(8), session, sealed_book(book).decode()),
            )
            for name, value in ((PROGRESS, progress), (EPOCHS, epochs)):
                encoded = msgspec.json.encode(value)
                db.execute("INSERT INTO meta (name, value) VALUES (?, ?)", (name, encoded))
    finally:
        db.close()
    fresh.chmod(0o600)
    sync(fresh)


def _create(path: Path, version: int) -> apsw.Connection:
    db = apsw.Connection(str(path))
    for setting in settings_of_new():
        db.execute(setting).fetchall()
    db.execute("PRAGMA synchronous = OFF").fetchall()  # it is synced as a whole, at the end
    upgrade(db, schema()[:version])
    db.execute(f"PRAGMA application_id = {MARK | version}").fetchall()
    return db


def _meta(raw: RawPages, remains: Remains) -> dict[str, Any]:
    """Return the values of the old store that the new one begins with."""
    found: dict[str, Any] = {}
    for page in remains.of("meta"):
        for row in raw.rows(page):
            with suppress(msgspec.DecodeError, ValueError, TypeError):
                if row is not None and row[1][0] in _TAKEN_OVER:
                    name = str(row[1][0])
                    value = msgspec.json.decode(cast("bytes", row[1][1]), type=_TAKEN_OVER[name])
                    found[name] = msgspec.to_builtins(value)
    return found


def _old_store(raw: RawPages, remains: Remains, wall_s: float) -> OldStore:
    """Return the book and the session that the old file holds, or what is on the safe side of both."""
    for page in remains.of("store"):
        for row in raw.rows(page):
            with suppress(StoreDamaged, ValueError):
                if row is not None:
                    _, epoch, session, text = row[1]
                    if isinstance(session, int):
                        return OldStore(book_of(str(text).encode()), session, str(epoch))
    # Numbers above any that were given out; a clock no later than it was, so that nothing expires early.
    above = int(max(wall_s, 0.0) * 1e6) + (1 << 40)
    return OldStore(Book(seq=above, event=above, powered_s=_latest_end(raw, remains)), 0, "")


def _latest_end(raw: RawPages, remains: Remains) -> float:
    ends = (row[1][0] for page in remains.of("task_ended") for row in raw.rows(page) if row is not None)
    return max((float(end) for end in ends if isinstance(end, int | float)), default=0.0)


# --- a copy with an old schema


def _bring_up_to_date(copy: Copy, raw: RawPages, remains: Remains) -> None:
    """Make a copy of what is readable that has the newest schema: the damaged file has an older one."""
    target = _upgraded(copy)
    beside = target.with_name(target.name + ".part")
    beside.unlink(missing_ok=True)
    db = _create(beside, remains.version)
    try:
        with db:
            _copy_rows(raw, remains, db)
        _complete(db)
        upgrade(db, schema())
        db.execute(f"PRAGMA application_id = {MARK | len(schema())}").fetchall()
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
