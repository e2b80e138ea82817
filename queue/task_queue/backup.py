"""Copies of a queue's database: taken while it is in use, and made ready to begin anew elsewhere.

Owns what makes a copy consistent and what a restored one must not repeat. Knows no archive and no directory.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from pathlib import Path

import apsw

from skerry.clock import Instant
from skerry.database import pragma, translated
from skerry.durable import sync
from skerry.errors import StorageFailed
from skerry.ids import TaskId
from task_queue.inspection import is_still
from task_queue.limits import Limits
from task_queue.operations import Cancel, PutMeta
from task_queue.sqlite_file import open_reader
from task_queue.sqlite_store import SqliteStore

#: Pages copied in one go, and the pause after it: commits on the same disk go between.
SLICE_PAGES = 256
PAUSE_S = 0.002
#: Slices between two syncs of the copy: little is left to be written at once when a commit syncs beside it.
SLICES_A_SYNC = 8
#: Under this name a restored store keeps where it came from.
RESTORED = "restored_from"
#: How a task ends that may take effect only once, and that may have run since the copy was made.
MAY_HAVE_RUN = "restored from a copy: it may have run since the copy was made; submit it again if it has not"

_OPEN_ONCE = (
    "SELECT task_id FROM task WHERE is_once AND state IN ('delayed', 'blocked', 'ready') ORDER BY seq"
)


def copy_in_use(source: Path, target: Path, *, pause: Callable[[float], None] = time.sleep) -> None:
    """Copy the database as it is at this moment, while others write it; no commit waits for the copy.

    The write-ahead log cannot be emptied until the copy is whole.  Raises StorageFailed: no half copy stays.
    """
    with translated(source):
        reader = open_reader(source, is_still=is_still(source))
        try:
            reader.execute("BEGIN")
            reader.execute("SELECT epoch FROM store").fetchall()  # from here on it sees this moment only
            _copy(reader, target, pause)
        except BaseException:
            target.unlink(missing_ok=True)
            raise
        finally:
            reader.close()


def _copy(reader: apsw.Connection, target: Path, pause: Callable[[float], None]) -> None:
    copy = apsw.Connection(str(target))
    try:
        copy.execute("PRAGMA synchronous = OFF")  # a copy counts only once it is whole and synced, below
        target.chmod(0o600)
        with copy.backup("main", reader, "main") as backup:
            slices = 0
            while not backup.done:
                backup.step(SLICE_PAGES)
                slices += 1
                if slices % SLICES_A_SYNC == 0:
                    sync(target)
                pause(PAUSE_S)
        copy.execute("PRAGMA journal_mode = DELETE").fetchall()  # one file, without a log beside it
    finally:
        copy.close()
    sync(target)


def why_unusable(path: Path, known_schema: int) -> tuple[str, ...]:
    """Return what speaks against using a copy; nothing when it is whole.  The file is only read."""
    try:
        db = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    except apsw.Error as error:
        return (f"it cannot be opened: {error}",)
    try:
        version = pragma(db, "user_version")
        if not 1 <= version <= known_schema:
            return (f"its schema version is {version}, this program knows 1 to {known_schema}",)
        findings = [str(line) for (line,) in db.execute("PRAGMA integrity_check(20)") if line != "ok"]
        return tuple(findings)
    except apsw.Error as error:
        return (f"it cannot be read: {error}",)
    finally:
        db.close()


def make_ready(
    path: Path,
    *,
    now: Instant,
    wall_s: Callable[[], float],
    limits: Limits,
    reports: bool,
    came_from: dict[str, object],
) -> int:
    """Make a restored copy fit to be used: a new epoch, so that no number that was given out is given again.

    A task that may take effect only once, and had not ended, is ended: it may have run since.  Return how
    many there were.  Raises StorageFailed.
    """
    store = SqliteStore.open(path, now=now, wall_s=wall_s, reports=reports, limits=limits)
    try:
        ended = [Cancel(task_id=task_id, reason=MAY_HAVE_RUN) for task_id in _open_once(path)]
        store.apply([*ended, PutMeta(name=RESTORED, value=came_from)], now=now)
    finally:
        store.close()
    with translated(path):
        db = apsw.Connection(str(path))
        try:
            db.execute("PRAGMA synchronous = FULL")
            db.execute("UPDATE store SET epoch = ?", (secrets.token_hex(8),))
            if db.changes() != 1:
                raise StorageFailed(f"{path} holds no queue")
        finally:
            db.close()
    sync(path)
    return len(ended)


def _open_once(path: Path) -> list[TaskId]:
    with translated(path):
        reader = open_reader(path)
        try:
            return [TaskId(task_id.hex()) for (task_id,) in reader.execute(_OPEN_ONCE)]
        finally:
            reader.close()
