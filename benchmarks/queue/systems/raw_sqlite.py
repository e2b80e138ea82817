"""The floor: bare statements on Skerry's own schema and settings, through the same SQLite, without any rule.

It writes the rows that a task's life leaves (body, state, report, story) and asks nothing else. What is read
back would make no sense to the store: the counters that it keeps beside the rows are not kept.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import apsw
import msgspec

from benchmarks.queue.systems.skerry_store import LIMITS, SkerryQueue
from task_queue.limits import Limits
from task_queue.sqlite_file import open_writer

_READY = "SELECT seq FROM task WHERE state = 'ready' ORDER BY priority DESC, turn LIMIT ?"
_START = (
    "UPDATE task SET state = 'running', attempt = 1, fence = '1', last_event = ?, events = 1 WHERE seq = ?"
)
_END = (
    "UPDATE task SET state = 'done', ended_on_s = 1, ended_wall_s = 1, last_event = ?, events = 2 "
    "WHERE seq = ?"
)
_SEND = (
    "INSERT INTO outbox (id, class, kind, key, \"coalesce\", body) VALUES (?, 'task', 'task.ended', ?, '', ?)"
)
_DECISION = msgspec.json.encode({"device": "cpu-0", "decided_by": "baseline:min-increase", "node": "edge-1"})
_OUTCOME = msgspec.json.encode({"status": "succeeded", "runtime_s": 0.1})
_REPORT = b"r" * 200  # what the report of a small task's end weighs, about


class Adapter:
    """See Queue."""

    def __init__(self, directory: Path, durable: bool) -> None:
        """Open the store's file, with one task put by the store itself as the pattern of all rows."""
        path, pattern = directory / "queue.db", directory / "pattern.msgpack"
        if not path.exists():
            pattern.write_bytes(msgspec.msgpack.encode(_pattern(directory)))
        self._pattern: dict[str, Any] = msgspec.msgpack.decode(pattern.read_bytes())
        self._db = open_writer(path, Limits(max_bytes=LIMITS.max_bytes))
        names = ", ".join(f'"{name}"' for name in self._pattern)
        marks = ", ".join(f":{name}" for name in self._pattern)
        self._insert = f"INSERT INTO task ({names}) VALUES ({marks})"
        self._task = itertools.count(self._next("task", "seq"))
        self._event = itertools.count(self._next("event", "id"))
        self._row = itertools.count(self._next("outbox", "id"))

    def _next(self, table: str, column: str) -> int:
        ((highest,),) = self._db.execute(f"SELECT max({column}) FROM {table}").fetchall()
        return 1 + (highest if isinstance(highest, int) else 0)

    def put(self, bodies: Sequence[bytes]) -> None:
        """See Queue."""
        millisecond = int(time.time() * 1000).to_bytes(6)
        self._db.execute("BEGIN IMMEDIATE")
        for body in bodies:
            seq = next(self._task)
            task_id = millisecond + seq.to_bytes(10)
            self._db.execute(self._insert, {**self._pattern, "seq": seq, "turn": seq, "task_id": task_id})
            self._db.execute("INSERT INTO body (seq, body) VALUES (?, ?)", (seq, body))
        self._db.execute("COMMIT")

    def cycle(self, count: int) -> int:
        """See Queue: what is claimed is started in one commit and ended in the next."""
        seqs = [seq for (seq,) in self._db.execute(_READY, (count,))]
        started: dict[int, int] = {}
        self._db.execute("BEGIN IMMEDIATE")
        for seq in seqs:
            started[seq] = self._story(None, "started", _DECISION)
            self._db.execute(_START, (started[seq], seq))
        self._db.execute("COMMIT")
        self._db.execute("BEGIN IMMEDIATE")
        for seq in seqs:
            self._db.execute(_END, (self._story(started[seq], "succeeded", _OUTCOME), seq))
            self._db.execute(_SEND, (next(self._row), f"{seq:032x}", _REPORT))
        self._db.execute("COMMIT")
        return len(seqs)

    def _story(self, previous: int | None, what: str, detail: bytes) -> int:
        number = next(self._event)
        self._db.execute(
            "INSERT INTO event (id, prev, at_wall_s, on_s, what, detail) VALUES (?, ?, ?, ?, ?, ?)",
            (number, previous, 1.0, 1.0, what, detail),
        )
        return number

    def forget(self) -> None:
        """See Queue: the reports go, as they do from Skerry's."""
        self._db.execute("DELETE FROM outbox")

    def pids(self) -> Sequence[int]:
        """See Queue."""
        return ()

    def close(self) -> None:
        """See Queue."""
        self._db.close()


def _pattern(directory: Path) -> dict[str, Any]:
    """Create the file by putting one task, and return that task's row; the row is deleted again."""
    queue = SkerryQueue(directory, durable=True)
    queue.put([b"\0" * 160])
    queue.close()
    db = apsw.Connection(str(directory / "queue.db"))
    try:
        cursor = db.execute("SELECT * FROM task")
        names = [column[0] for column in cursor.get_description()]
        row = dict(zip(names, cursor.fetchall()[0], strict=True))
        db.execute("DELETE FROM body")
        db.execute("DELETE FROM task")
    finally:
        db.close()
    return row


def open_queue(directory: Path, durable: bool) -> Adapter:
    """Open the file without the store."""
    return Adapter(directory, durable)
