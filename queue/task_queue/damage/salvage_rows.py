"""What becomes of each row that was read from a damaged file: put in as it is, put right, or not believed.

A task is never put in so that it could run a second time: what is not certain is marked as unknown.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast

import apsw

from skerry.errors import SpecError
from skerry.fence import parse_fence
from skerry.ids import TaskId
from skerry.messages import Lane
from skerry.task import TaskSpec
from task_queue.attempts import interrupt
from task_queue.damage.remains import BY_KEY, Shape
from task_queue.records import Value
from task_queue.rows import readable_spec_of
from task_queue.sqlite_outbox import lane_of, seq_of
from task_queue.store import scoped_key
from task_queue.story import DAMAGED
from task_queue.task import State
from task_queue.transaction import Transaction

#: What a mark of a lost task holds, in the columns that the schema has; the others take what it allows.
_MARK: dict[str, Any] = {
    "state": State.UNKNOWN.value,
    "is_once": 1,
    "kind": "lost",
    "waiting_for": DAMAGED,
}
_EMPTY: dict[type, Any] = {int: 0, float: 0.0, str: "", bytes: b""}


@dataclass
class Putting:
    """Puts rows of one schema into a store, inside the commits of its owner."""

    db: apsw.Connection
    shapes: dict[str, Shape]
    is_interrupted: bool  #: what was running is not running any more
    trimmed: dict[Lane, int]  #: rows of the old outbox up to these were acknowledged
    is_marked_placed: Callable[[int], bool] = lambda _: False  #: an open task of a coordinator
    confirms: Callable[[str, str, int], bool] = lambda *_: True  #: an index of the old file has key and row
    _sql: dict[tuple[str, int], str] = field(default_factory=dict)

    def put(self, tx: Transaction, table: str, row_id: int, values: list[Value]) -> bool:
        """Put a row in; False when it cannot be believed, or is there already."""
        row = self.shapes[table].row(row_id, values)
        if row is None:
            return False
        match table:
            case "task":
                return self._put_task(tx, row)
            case "outbox":
                return self._put_message(tx, dict(zip(self._names(table), row, strict=False)))
            case "inbox":
                self.db.execute("DELETE FROM inbox WHERE source=? AND epoch=? AND lane=? AND upto<?", row[:4])
                return self._insert(table, row[:4]) or self._is_there(table, row[:3])
            case "meta" | "recurring":  # written anew meanwhile
                return self._insert(table, row) or self._is_there(table, row[:1])
            case "loss":
                return self._put_loss(tx, row)
            case "remembered":
                is_new = self._insert(table, row)
                tx.book.remembered += is_new
                return is_new
            case _:
                return self._insert(table, row)

    def _is_there(self, table: str, key: list[Value]) -> bool:
        """Decide whether there is a row whose first columns are these."""
        wanted = " AND ".join(f'"{name}" = ?' for name in self._names(table)[: len(key)])
        return bool(self.db.execute(f'SELECT 1 FROM "{table}" WHERE {wanted}', key).fetchall())

    def _put_loss(self, tx: Transaction, row: list[Value]) -> bool:
        """Add the totals of the old ledger to what was lost meanwhile."""
        values = dict(zip(self._names("loss"), row, strict=False))
        if values["rows"] != values.get("rows_told"):
            tx.book.has_untold_losses = True
        if self._insert("loss", row):
            return True
        self.db.execute(
            "UPDATE loss SET rows = rows + :rows, bytes = bytes + :bytes, rows_told = rows_told + :rows_told "
            "WHERE class = :class AND reason = :reason",
            {"rows_told": 0, **values},
        )
        return self.db.changes() > 0

    def _names(self, table: str) -> list[str]:
        return [column.name for column in self.shapes[table].columns]

    def _insert(self, table: str, row: list[Value]) -> bool:
        sql = self._sql.get((table, len(row)))
        if sql is None:
            names = self._names(table)[: len(row)]
            marks = ", ".join("?" * len(row))
            columns = ", ".join(f'"{name}"' for name in names)
            sql = f'INSERT OR IGNORE INTO "{table}" ({columns}) VALUES ({marks})'
            self._sql[table, len(row)] = sql
        try:
            self.db.execute(sql, row)
        except apsw.ConstraintError:  # the task that it belongs to is not there
            return False
        return self.db.changes() > 0

    # --- tasks

    def _put_task(self, tx: Transaction, row: list[Value]) -> bool:
        named = self._with_sound_keys(dict(zip(self._names("task"), row, strict=False)))
        row = list(named.values())
        if not _has_sound_fences(named) or not self._insert("task", row):
            return False
        seq, state = named["seq"], State(str(named["state"]))
        assert isinstance(seq, int)
        tx.book.count(state, 1)
        if state is State.RUNNING and self.is_interrupted:
            task_id = named["task_id"]
            assert isinstance(task_id, bytes)
            task = tx.tables.task(TaskId(task_id.hex()))
            if task is not None:
                interrupt(tx, task)
        return True

    def _with_sound_keys(self, named: dict[str, Value]) -> dict[str, Value]:
        """Return a task's row with the keys that its document has, where the indexes say nothing else."""
        task = self._document(int(str(named["seq"])))
        if task is None:
            return named
        wanted = {"queue_key": ("task_key", scoped_key(task.tenant, task.ordering_key))}
        if named.get("known") is None:  # what a coordinator placed here has no key of its own
            wanted["request_key"] = ("task_request", scoped_key(task.tenant, task.idempotency_key))
        for name, (index, key) in wanted.items():
            has = named.get(name)
            if has != key and not (
                isinstance(has, str) and self.confirms(index, has, int(str(named["seq"])))
            ):
                named[name] = key
        return named

    def _document(self, seq: int) -> TaskSpec | None:
        found = self.db.execute("SELECT body FROM body WHERE seq = ?", (seq,)).fetchall()
        return readable_spec_of(cast("bytes", found[0][0])) if found else None

    def has(self, seq: int) -> bool:
        """Decide whether the row of a task is there."""
        return bool(self.db.execute("SELECT 1 FROM task WHERE seq = ?", (seq,)).fetchall())

    def event_of(self, task_id: bytes, age: int) -> int | None:
        """Return the number of the newest event of a task, or, with age 1, of the one before it."""
        sql = "SELECT last_event FROM task WHERE task_id = ?"
        for _ in range(age):
            sql = f"SELECT prev FROM event WHERE id = ({sql})"
        found = self.db.execute(sql, (task_id,)).fetchall()
        return found[0][0] if found and isinstance(found[0][0], int) else None

    def mark_lost(self, tx: Transaction, task_id: bytes, seq: int, request_key: str | None = None) -> bool:
        """Keep that a task was accepted whose row is lost: it is not taken again, its end is unknown."""
        is_known = request_key is not None and tx.tables.request(request_key) is not None
        if is_known or self.is_marked_placed(seq) or tx.tables.remembered(TaskId(task_id.hex())) is not None:
            return False  # what is known of it says more
        shape = self.shapes["task"]
        known = {
            **_MARK,
            "seq": seq,
            "turn": seq,
            "task_id": task_id,
            "request_key": request_key,
            "accepted_wall_s": int.from_bytes(task_id[:6], "big") / 1000,
            "ended_on_s": tx.on_s,
            "ended_wall_s": tx.wall_s,
        }
        row = [
            known.get(column.name, _EMPTY[column.holds[0]] if column.is_required else None)
            for column in shape.columns
        ]
        if not self._insert("task", row):
            return False
        tx.book.count(State.UNKNOWN, 1)
        return True

    def mark_key(self, tx: Transaction, request_key: str, seq: int) -> bool:
        """Keep an idempotency key whose task's row is lost; False when the row is there."""
        held = self.db.execute("SELECT request_key, state FROM task WHERE seq = ?", (seq,)).fetchall()
        if not held:
            made_up = hashlib.blake2b(request_key.encode(), digest_size=16).digest()
            return self.mark_lost(tx, b"\0" * 6 + made_up[6:], seq, request_key)
        has = held[0][0]
        is_lost = has is None and held[0][1] == State.UNKNOWN.value
        is_wrong = isinstance(has, str) and has != request_key and not self.confirms(BY_KEY, has, seq)
        if is_lost or (is_wrong and self._document(seq) is None):
            self.db.execute("UPDATE OR IGNORE task SET request_key = ? WHERE seq = ?", (request_key, seq))
        return False

    # --- messages

    def _put_message(self, tx: Transaction, row: dict[str, Value]) -> bool:
        """Queue a message anew, under the number that is next here: no number of the old store goes on."""
        message_id, body, coalesce = row["id"], row["body"], str(row["coalesce"])
        assert isinstance(message_id, int)
        assert isinstance(body, bytes)
        lane = lane_of(message_id)
        if lane is None:
            return False
        if seq_of(message_id) <= self.trimmed.get(lane, 0):
            return True  # acknowledged: it was to be deleted
        if coalesce and tx.tables.newest_coalesced(lane, coalesce):
            return True  # a newer one has taken its place meanwhile
        tx.append(lane, str(row["kind"]), body, key=str(row["key"]), coalesce=coalesce)
        return True


def _has_sound_fences(named: dict[str, Value]) -> bool:
    try:
        for name in ("placement", "known", "fence"):
            text = named.get(name)
            if text is not None:
                parse_fence(str(text))
    except SpecError:
        return False
    return True
