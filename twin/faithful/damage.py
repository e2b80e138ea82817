"""What becomes of a queue's file on a bad disk or under a careless hand. Emulated; knows no agent."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import apsw

from skerry.errors import StoreDamaged
from task_queue.damage.salvage import PROGRESS
from task_queue.inspection import check_in_use

if TYPE_CHECKING:
    from task_queue.sqlite_store import SqliteStore

#: Of so many pages one is written over with noise.
ONE_IN = 12
SECTOR_BYTES = 512


def damage(path: Path, how: str, rng: Random) -> None:
    """Damage a database that nobody has open, or one in use by noise alone."""
    _HOW[how](path, rng)


def do_idle_work(store: SqliteStore, path: Path) -> None:
    """Do what a writer's idle moments are for: finish a salvage, and go through the whole file."""
    with suppress(StoreDamaged):  # the store has taken note of it
        while store.meta(PROGRESS) is not None:
            store.tidy()  # how far it came in real time decides nothing
    checked = check_in_use(path)
    if checked.damage is not None:
        store.suspect(checked.damage)


def _noise(path: Path, rng: Random) -> None:
    """Write over some pages; the first says what the file is, and is zeroed by the other kinds."""
    with path.open("r+b") as file:
        size = int.from_bytes(file.read(18)[16:18], "big")
        pages = path.stat().st_size // size
        for page in rng.sample(range(1, pages), max(1, pages // ONE_IN)):
            file.seek(page * size)
            file.write(rng.randbytes(size))


def _zeros(path: Path, rng: Random) -> None:
    path.write_bytes(bytes(path.stat().st_size))


def _empty(path: Path, rng: Random) -> None:
    path.write_bytes(b"")


def _cut_short(path: Path, rng: Random) -> None:
    sectors = path.stat().st_size // SECTOR_BYTES
    with path.open("r+b") as file:
        file.truncate(rng.randrange(sectors // 2, sectors) * SECTOR_BYTES)


def _gone(path: Path, rng: Random) -> None:
    path.unlink()


def _rows_by_hand(path: Path, rng: Random) -> None:
    """As somebody does who wants to be rid of some tasks."""
    db = apsw.Connection(str(path))
    try:
        db.execute("DELETE FROM body WHERE seq % 4 = 0")
        db.execute("UPDATE body SET body = 'none' WHERE seq % 4 = 1")
        db.execute("DELETE FROM event WHERE id % 5 = 0")
    finally:
        db.close()


_HOW: dict[str, Callable[[Path, Random], None]] = {
    "noise": _noise,
    "zeros": _zeros,
    "empty": _empty,
    "cut_short": _cut_short,
    "gone": _gone,
    "rows_by_hand": _rows_by_hand,
}
