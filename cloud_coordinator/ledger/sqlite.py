"""The SQLite ledger: write-ahead log, every outermost transaction synced. Owns one connection.

One thread at a time. Knows nothing of what the rows mean: decisions are made above, by the core.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw
import msgspec

from cloud_coordinator.ledger import rows
from cloud_coordinator.ledger.values import (
    Counter,
    DeadLetter,
    Head,
    LedgerTask,
    Mark,
    Placement,
    TaskFilter,
    TaskState,
    Token,
)
from skerry.database import open_ledger, translated
from skerry.errors import StorageFailed
from skerry.fence import Fence
from skerry.messages import Lane, Row
from skerry.node import NodeRecord
from skerry.sql import load_schema, load_statements

PACKAGE = "cloud_coordinator.ledger"
#: How many dead letters are kept.
DEAD_LETTERS_KEPT = 10_000


class SqliteLedger:
    """A ledger in one database file."""

    def __init__(self, path: Path) -> None:
        """Open or create the database and bring its schema up to date.

        Raises StoreTooNew, leaving the file as it is; StorageFailed when the file cannot be used.
        """
        self._path = path
        self._depth = 0
        self._sql = load_statements(PACKAGE)
        self._db = open_ledger(path, load_schema(PACKAGE))
        self._db.row_trace = _as_dict
        if self._value("get_meta", name="epoch") is None:
            with self.transaction():
                self._run("put_meta", name="epoch", value=secrets.token_hex(8))

    @property
    def epoch(self) -> str:
        """Random id of this ledger."""
        return str(self._value("get_meta", name="epoch"))

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Make the block one commit, or one undoable part of the commit it stands in."""
        name = f"level_{self._depth}"
        self._execute("BEGIN IMMEDIATE" if self._depth == 0 else f"SAVEPOINT {name}")
        self._depth += 1
        try:
            yield
        except BaseException:
            self._depth -= 1
            self._undo(name)
            raise
        self._depth -= 1
        try:
            self._execute("COMMIT" if self._depth == 0 else f"RELEASE {name}")
        except StorageFailed:
            self._undo(name)
            raise

    def close(self) -> None:
        """Close in order."""
        self._db.close()

    def begin_term(self) -> int:
        """Return a term greater than every one before, durably."""
        with self.transaction():
            term = int(self._value("get_meta", name="term") or 0) + 1
            self._run("put_meta", name="term", value=str(term))
        return term

    def start_over(self, above: int) -> int:
        """Take a new epoch, forget every open task, and return a new term greater than `above`."""
        with self.transaction():
            term = max(above, int(self._value("get_meta", name="term") or 0)) + 1
            self._run("put_meta", name="term", value=str(term))
            self._run("put_meta", name="epoch", value=secrets.token_hex(8))
            self._run("forget_open_tasks")
        return term

    # --- register ---------------------------------------------------------------------------------------

    def node(self, name: str) -> NodeRecord | None:
        """Return one node, or None."""
        return rows.from_json(self._value("get_node", name=name), NodeRecord)

    def nodes(self) -> list[NodeRecord]:
        """Return every node, by name."""
        return [msgspec.json.decode(row["body"], type=NodeRecord) for row in self._all("all_nodes")]

    def put_node(self, record: NodeRecord) -> None:
        """Write a node, new or known."""
        self._run("put_node", name=record.name, body=rows.to_json(record))

    def token(self, digest: str) -> Token | None:
        """Return an enrolment token by the hash of its text, or None."""
        return rows.from_json(self._value("get_token", digest=digest), Token)

    def put_token(self, token: Token) -> None:
        """Write a token, new or known."""
        self._run("put_token", digest=token.digest, body=rows.to_json(token))

    # --- tasks ------------------------------------------------------------------------------------------

    def task(self, task_id: str) -> LedgerTask | None:
        """Return one task, or None."""
        found = self._all("get_task", task_id=task_id)
        return rows.task_from_row(found[0]) if found else None

    def put_task(self, task: LedgerTask) -> None:
        """Write a task, new or known."""
        self._run("put_task", **rows.task_to_row(task))

    def find(self, task_filter: TaskFilter) -> list[LedgerTask]:
        """Return tasks, newest first."""
        values = msgspec.structs.asdict(task_filter)
        values["state"] = task_filter.state.value if task_filter.state else None
        return [rows.task_from_row(row) for row in self._all("find_tasks", **values)]

    def pending(self, limit: int, offset: int = 0) -> list[LedgerTask]:
        """Return waiting tasks: higher priority first, then in order of arrival."""
        return [rows.task_from_row(row) for row in self._all("pending_tasks", limit=limit, offset=offset)]

    def placed(self, node: str | None = None) -> list[LedgerTask]:
        """Return the tasks under a current placement, in order of arrival."""
        found = self._all("placed_tasks") if node is None else self._all("placed_tasks_of", node=node)
        return [rows.task_from_row(row) for row in found]

    def count_tasks(self) -> Mapping[TaskState, int]:
        """Return how many tasks there are in each state."""
        return {TaskState(row["state"]): row["count"] for row in self._all("count_tasks")}

    def prune(self, keep_ended: int) -> int:
        """Forget the oldest final tasks beyond keep_ended; return how many."""
        counts = self.count_tasks()
        excess = counts[TaskState.ENDED] + counts[TaskState.WITHDRAWN] - keep_ended
        if excess > 0:
            self._run("prune_tasks", excess=excess)
        return max(0, excess)

    def add_placement(self, placement: Placement) -> None:
        """Write a new placement."""
        self._run("add_placement", **rows.placement_to_row(placement))

    def end_placement(self, task_id: str, fence: Fence, ended: str, reason: str, wall_s: float) -> None:
        """Write how a placement ended; the first word stands."""
        values = {"ended": ended, "reason": reason, "wall_s": wall_s}
        self._run("end_placement", task_id=task_id, fence=str(fence), **values)

    def placements(self, task_id: str) -> list[Placement]:
        """Return a task's placements, oldest first."""
        return [rows.placement_from_row(row) for row in self._all("placements_of", task_id=task_id)]

    # --- command log ------------------------------------------------------------------------------------

    def append_command(self, node: str, lane: Lane, kind: str, body: bytes, key: str = "") -> int:
        """Write the next command for a node and return its sequence number."""
        seq = int(self._value("next_command", node=node, lane=lane.value))
        values = {"node": node, "lane": lane.value, "seq": seq, "kind": kind, "key": key}
        self._run("add_command", body=body.decode(), **values)
        return seq

    def commands(self, node: str, lane: Lane, after: int, *, limit: int, limit_bytes: int) -> list[Row]:
        """Return commands above `after`, in order; at least one when there is one."""
        found: list[Row] = []
        size = 0
        for row in self._all("commands_after", node=node, lane=lane.value, after=after, limit=limit):
            body = row.pop("body").encode()
            size += len(body)
            if found and size > limit_bytes:
                break
            found.append(Row(body=msgspec.Raw(body), **row))
        return found

    def trim_commands(self, node: str, lane: Lane, upto: int) -> None:
        """Forget the commands the node has applied."""
        self._run("ack_commands", node=node, lane=lane.value, upto=upto)
        self._run("trim_commands", node=node, lane=lane.value, upto=upto)

    def head(self, node: str, lane: Lane) -> Head:
        """Return the last command written and the last one applied."""
        found = self._all("get_head", node=node, lane=lane.value)
        return Head(**found[0]) if found else Head()

    # --- the nodes' streams -----------------------------------------------------------------------------

    def mark(self, node: str, epoch: str, lane: Lane) -> Mark:
        """Return up to where a node's stream is applied."""
        found = self._all("get_mark", node=node, epoch=epoch, lane=lane.value)
        return Mark(**found[0]) if found else Mark()

    def put_mark(self, node: str, epoch: str, lane: Lane, mark: Mark) -> None:
        """Write up to where a node's stream is applied."""
        self._run("put_mark", node=node, epoch=epoch, lane=lane.value, **msgspec.structs.asdict(mark))

    def add_dead_letter(self, letter: DeadLetter) -> None:
        """Keep a row that could not be applied."""
        values = msgspec.structs.asdict(letter)
        values.pop("number")
        self._run("add_dead_letter", **{**values, "lane": letter.lane.value})
        self._run("drop_dead_letters", keep=DEAD_LETTERS_KEPT)

    def dead_letters(self, limit: int = 50, before: int | None = None) -> list[DeadLetter]:
        """Return dead letters, newest first."""
        found = self._all("dead_letters_before", limit=limit, before=1 << 62 if before is None else before)
        return [rows.letter_from_row(row) for row in found]

    # --- documents --------------------------------------------------------------------------------------

    def document(self, kind: str, name: str) -> bytes | None:
        """Return one small document, or None."""
        body = self._value("get_document", kind=kind, name=name)
        return None if body is None else bytes(body)

    def documents(self, kind: str) -> list[tuple[str, bytes]]:
        """Return (name, body) of every document of a kind, by name."""
        return [(row["name"], bytes(row["body"])) for row in self._all("documents_of", kind=kind)]

    def put_document(self, kind: str, name: str, body: bytes) -> None:
        """Write a document, new or known."""
        self._run("put_document", kind=kind, name=name, body=body)

    def drop_document(self, kind: str, name: str) -> None:
        """Forget a document; nothing happens when there is none."""
        self._run("drop_document", kind=kind, name=name)

    # --- counters ---------------------------------------------------------------------------------------

    def count(self, name: str, *, node: str = "", reason: str = "", by: int = 1) -> None:
        """Add to a counter."""
        self._run("count", name=name, node=node, reason=reason, by=by)

    def counters(self) -> list[Counter]:
        """Return every counter."""
        return [Counter(**row) for row in self._all("all_counters")]

    # --- inside -----------------------------------------------------------------------------------------

    def _run(self, statement: str, **values: Any) -> None:
        with translated(self._path):
            self._db.execute(self._sql[statement], values)

    def _all(self, statement: str, **values: Any) -> list[dict[str, Any]]:
        with translated(self._path):
            found: list[Any] = self._db.execute(self._sql[statement], values).fetchall()
            return found  # dictionaries: the connection's row trace makes them

    def _value(self, statement: str, **values: Any) -> Any:
        with translated(self._path):
            found: Any = self._db.execute(self._sql[statement], values).fetchone()
            return next(iter(found.values())) if found else None

    def _execute(self, sql: str) -> None:
        with translated(self._path):
            self._db.execute(sql)

    def _undo(self, name: str) -> None:
        """Roll back; SQLite may have done so itself when the disk failed."""
        if not self._db.in_transaction:
            return
        if self._depth == 0:
            self._execute("ROLLBACK")
        else:
            self._execute(f"ROLLBACK TO {name}")
            self._execute(f"RELEASE {name}")


def _as_dict(cursor: apsw.Cursor, row: apsw.SQLiteValues) -> dict[str, Any]:
    return {column[0]: value for column, value in zip(cursor.description, row, strict=True)}
