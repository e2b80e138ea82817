"""The tables in SQLite: values to columns and back, by named statements on one connection. Knows no rules."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import apsw

from skerry.errors import InvalidTransition
from skerry.fence import Fence, parse_fence
from skerry.ids import TaskId
from skerry.messages import Lane
from task_queue.queries import columns_written, statements
from task_queue.recurring_tables import SqliteRecurring
from task_queue.retention import Amount, Amounts, RowClass
from task_queue.rows import OutboxRow, TaskRow, decision_of, packed, stored_state
from task_queue.store import Attempt, Loss
from task_queue.task import Event, State

_FIELDS = TaskRow.__struct_fields__
_STATES = {state.value: state for state in State}


def task_of(columns: Sequence[Any]) -> TaskRow:
    """Return a row of the task table as a value."""
    seq, task_id, state, priority, turn, kind, is_once, *rest = columns
    row = TaskRow(seq, TaskId(task_id.hex()), _STATES[state], priority, turn, kind, bool(is_once), *rest)
    return row


def columns_of(row: TaskRow) -> dict[str, Any]:
    """Return a value as named columns."""
    columns = {name: getattr(row, name) for name in _FIELDS}
    columns["task_id"] = bytes.fromhex(row.task_id)
    columns["state"] = stored_state(row.state).value
    return columns


def attempt_of(columns: Sequence[Any]) -> Attempt:
    """Return a row of the attempt table as a value."""
    fence, device, started_wall_s, ended, error, runtime_s, decision = columns
    return Attempt(
        fence=parse_fence(fence),
        device=device,
        started_wall_s=started_wall_s,
        decision=decision_of(decision),
        ended=ended,
        error=error,
        runtime_s=runtime_s,
    )


#: Bits of a message's id that hold its sequence number; the lane's number lies above them.
_SEQ_BITS = 48
_LANE_NUMBERS = {lane: number for number, lane in enumerate(Lane)}


def row_id(lane: Lane, seq: int) -> int:
    """Return the id of a message: lanes apart, each in its order."""
    return (_LANE_NUMBERS[lane] << _SEQ_BITS) + seq


def seq_of(message_id: int) -> int:
    """Return the sequence number in a message's id."""
    return message_id & ((1 << _SEQ_BITS) - 1)


def span(lane: Lane, *, above: int = 0, upto: int = (1 << _SEQ_BITS) - 1) -> dict[str, int]:
    """Return the first and last id of a lane's messages above one sequence number and up to another."""
    return {"first": row_id(lane, above + 1), "last": row_id(lane, upto)}


def loss_of(columns: Sequence[Any]) -> Loss:
    """Return a row of the loss table as a value."""
    lost_class, reason, rows, size_bytes, rows_told = columns
    return Loss(lost_class=lost_class, reason=reason, rows=rows, size_bytes=size_bytes, rows_told=rows_told)


class SqliteTables(SqliteRecurring):
    """Tables on one connection. is_dirty: something was written since it was last cleared."""

    def __init__(self, db: apsw.Connection) -> None:
        """Work on db, inside the transactions that its owner begins and ends."""
        self._db = db
        self._sql = statements()
        self.is_dirty = False

    def _read(self, name: str, **values: Any) -> list[Any]:
        return self._db.execute(self._sql[name], values).fetchall()

    def _write(self, name: str, values: dict[str, Any]) -> int:
        self._db.execute(self._sql[name], values)
        changed = self._db.changes()
        self.is_dirty = self.is_dirty or changed > 0
        return changed

    def _tasks(self, name: str, **values: Any) -> list[TaskRow]:
        return [task_of(columns) for columns in self._read(name, **values)]

    def task(self, task_id: TaskId) -> TaskRow | None:
        """See Tables."""
        return next(iter(self._tasks("task_by_id", task_id=bytes.fromhex(task_id))), None)

    def tasks(self, seqs: Sequence[int]) -> list[TaskRow]:
        """See Tables."""
        return [row for seq in seqs for row in self._tasks("task_by_seq", seq=seq)]

    def request(self, request_key: str) -> TaskId | None:
        """See Tables."""
        found = self._read("task_by_request", request_key=request_key)
        return TaskId(found[0][0].hex()) if found else None

    def insert(self, row: TaskRow) -> None:
        """See Tables."""
        self._write("insert_task", columns_of(row))

    def move(self, row: TaskRow, event: Event, changed: frozenset[str]) -> None:
        """See Tables."""
        name = f"on_{event.value}"
        unwritten = changed - columns_written(name)
        assert not unwritten, f"{name} does not write {sorted(unwritten)}"
        if self._write(name, columns_of(row)) != 1:
            stored = self.task(row.task_id)
            raise InvalidTransition(stored.state if stored else "absent", event)

    def amend(self, row: TaskRow) -> None:
        """See Tables."""
        self._write("amend_task", columns_of(row))

    def delete_task(self, row: TaskRow) -> None:
        """See Tables."""
        self._write("delete_task", {"seq": row.seq})

    def first_open(self, queue_key: str) -> TaskRow | None:
        """See Tables."""
        return next(iter(self._tasks("first_open", queue_key=queue_key)), None)

    def ready(self, limit: int) -> list[int]:
        """See Tables."""
        return [seq for (seq,) in self._read("ready", limit=limit)]

    def due(self, on_s: float, limit: int) -> list[TaskRow]:
        """See Tables."""
        return self._tasks("due", on_s=on_s, limit=limit)

    def expiring(self, on_s: float, limit: int) -> list[TaskRow]:
        """See Tables."""
        return self._tasks("expiring", on_s=on_s, limit=limit)

    def lapsed(self, on_s: float, limit: int) -> list[TaskRow]:
        """See Tables."""
        return self._tasks("lapsed", on_s=on_s, limit=limit)

    def overdue(self, on_s: float, limit: int) -> list[TaskRow]:
        """See Tables."""
        return self._tasks("overdue", on_s=on_s, limit=limit)

    def ended_before(self, on_s: float, limit: int) -> list[TaskRow]:
        """See Tables."""
        return self._tasks("ended_before", on_s=on_s, limit=limit)

    def running(self) -> list[TaskRow]:
        """See Tables."""
        return self._tasks("running")

    def next_times(self) -> tuple[float | None, float | None, float | None, float | None]:
        """See Tables."""
        due, expiry, lapse, overdue = self._read("next_times")[0]
        return due, expiry, lapse, overdue

    def add_attempt(self, seq: int, attempt: Attempt) -> None:
        """See Tables."""
        self._write(
            "add_attempt",
            {
                "seq": seq,
                "number": attempt.fence.attempt,
                "fence": str(attempt.fence),
                "device": attempt.device,
                "started_wall_s": attempt.started_wall_s,
                "decision": packed(attempt.decision),
            },
        )

    def end_attempt(self, seq: int, fence: Fence, ended: str, error: str, runtime_s: float) -> None:
        """See Tables."""
        values = {"seq": seq, "number": fence.attempt, "fence": str(fence)}
        self._write("end_attempt", {**values, "ended": ended, "error": error, "runtime_s": runtime_s})

    def append_outbox(self, row: OutboxRow) -> None:
        """See Tables."""
        values = {"id": row_id(row.lane, row.seq), "row_class": row.row_class.value, "body": row.body}
        self._write("append_outbox", {**values, "kind": row.kind, "key": row.key, "coalesce": row.coalesce})

    def newest_coalesced(self, lane: Lane, coalesce: str) -> int:
        """See Tables."""
        ((newest,),) = self._read("newest_coalesced", coalesce=coalesce, **span(lane))
        return seq_of(newest or 0)

    def delete_coalesced(self, lane: Lane, coalesce: str) -> Amounts:
        """See Tables."""
        gone: Amounts = {}
        for name, size_bytes in self._read("delete_coalesced", coalesce=coalesce, **span(lane)):
            row_class = RowClass(name)
            gone[row_class] = gone.get(row_class, Amount()).plus(Amount(1, size_bytes))
            self.is_dirty = True
        return gone

    def trim_outbox(self, lane: Lane, upto: int, limit: int) -> Amounts:
        """See Tables."""
        within = span(lane, upto=upto)
        found = self._read("trim_slice", limit=limit, **within)
        if found:
            self._write("trim_outbox", {**within, "last": max(last for *_, last in found)})
        return {RowClass(name): Amount(rows, size_bytes) for name, rows, size_bytes, _ in found}

    def evict_outbox(self, lane: Lane, above: int, limit: int) -> Amounts:
        """See Tables."""
        within = span(lane, above=above)
        ((rows, size_bytes, last),) = self._read("evict_slice", limit=limit, **within)
        if not rows:
            return {}
        self._write("evict_outbox", {**within, "last": last})
        return {RowClass.TELEMETRY: Amount(rows, size_bytes)}

    def add_loss(self, lost_class: str, reason: str, amount: Amount) -> None:
        """See Tables."""
        values = {"lost_class": lost_class, "reason": reason}
        self._write("add_loss", {**values, "rows": amount.rows, "size_bytes": amount.size_bytes})

    def losses(self) -> list[Loss]:
        """See Tables."""
        return [loss_of(columns) for columns in self._read("losses")]

    def losses_told(self, loss: Loss) -> None:
        """See Tables."""
        values = {"lost_class": loss.lost_class, "reason": loss.reason, "rows": loss.rows}
        self._write("losses_told", values)

    def mark_inbox(self, source: str, epoch: str, lane: Lane, upto: int) -> None:
        """See Tables."""
        self._write("mark_inbox", {"source": source, "epoch": epoch, "lane": lane.value, "upto": upto})

    def put_meta(self, name: str, value: bytes) -> None:
        """See Tables."""
        self._write("put_meta", {"name": name, "value": value})
