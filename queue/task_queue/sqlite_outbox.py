"""The outbox and the loss ledger in SQLite: their part of the inner port. Knows no rules.

A message lies in its lane's place: its id is the lane's number above its sequence number.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from skerry.messages import Lane
from task_queue.retention import Amount, Amounts, RowClass
from task_queue.rows import OutboxRow
from task_queue.store import Loss

#: Bits of a message's id that hold its sequence number; the lane's number lies above them.
_SEQ_BITS = 48
_LANES = tuple(Lane)
_LANE_NUMBERS = {lane: number for number, lane in enumerate(_LANES)}


def row_id(lane: Lane, seq: int) -> int:
    """Return the id of a message: lanes apart, each in its order."""
    return (_LANE_NUMBERS[lane] << _SEQ_BITS) + seq


def seq_of(message_id: int) -> int:
    """Return the sequence number in a message's id."""
    return message_id & ((1 << _SEQ_BITS) - 1)


def lane_of(message_id: int) -> Lane | None:
    """Return the lane in a message's id, None when there is no such lane."""
    number = message_id >> _SEQ_BITS
    return _LANES[number] if 0 <= number < len(_LANES) else None


def span(lane: Lane, *, above: int = 0, upto: int = (1 << _SEQ_BITS) - 1) -> dict[str, int]:
    """Return the first and last id of a lane's messages above one sequence number and up to another."""
    return {"first": row_id(lane, above + 1), "last": row_id(lane, upto)}


def loss_of(columns: Sequence[Any]) -> Loss:
    """Return a row of the loss table as a value."""
    lost_class, reason, rows, size_bytes, rows_told = columns
    return Loss(lost_class=lost_class, reason=reason, rows=rows, size_bytes=size_bytes, rows_told=rows_told)


class SqliteOutbox(ABC):
    """The tables, for a class that reads and writes by named statements."""

    _is_dirty: bool

    @abstractmethod
    def _read(self, name: str, **values: Any) -> list[Any]: ...

    @abstractmethod
    def _write(self, name: str, values: dict[str, Any]) -> int: ...

    @abstractmethod
    def _append(self, name: str, values: tuple[Any, ...]) -> None: ...

    def append_outbox(self, row: OutboxRow) -> None:
        """See Tables."""
        place = row_id(row.lane, row.seq)
        self._append("append_outbox", (place, row.row_class, row.kind, row.key, row.coalesce, row.body))

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
            self._is_dirty = True
        return gone

    def trim_outbox(self, lane: Lane, upto: int, limit: int) -> Amounts:
        """See Tables."""
        within = span(lane, upto=upto)
        found = self._read("trim_slice", limit=limit, **within)
        if found:
            within["last"] = max(last for *_, last in found)
            ((is_all,),) = self._read("is_all_of_outbox", **within)
            self._write("empty_outbox" if is_all else "trim_outbox", {} if is_all else within)
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
