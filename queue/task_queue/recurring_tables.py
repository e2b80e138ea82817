"""The table of recurring tasks: its part of the inner port, in SQLite and in memory. Knows no rules."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import msgspec

from skerry.ids import TaskId
from skerry.recurring import RecurringSpec
from task_queue.recurring_row import Progress, RecurringRow


class RecurringTables(Protocol):
    """Recurring tasks inside one transaction."""

    def recurring(self, name: str) -> RecurringRow | None:
        """Return the row with this name."""
        ...

    def all_recurring(self) -> list[RecurringRow]:
        """Return every row, by name."""
        ...

    def due_recurring(self, on_s: float, wall_s: float, limit: int) -> list[RecurringRow]:
        """Return rows to look at: their powered-on second, or their time of the wall clock, has come."""
        ...

    def next_recurring(self) -> tuple[float | None, float | None]:
        """Return the next powered-on second and the next time of the wall clock at which to look at one."""
        ...

    def put_recurring(self, row: RecurringRow) -> None:
        """Write a row in the place of the one with its name."""
        ...

    def delete_recurring(self, name: str) -> None:
        """Remove a row."""
        ...


def recurring_of(columns: Sequence[Any]) -> RecurringRow:
    """Return a row of the table as a value."""
    recurring_id, spec, progress = columns
    return RecurringRow(
        recurring_id=TaskId(recurring_id.hex()),
        spec=msgspec.json.decode(spec, type=RecurringSpec),
        progress=msgspec.json.decode(progress, type=Progress),
    )


class SqliteRecurring(ABC):
    """The table in SQLite, for a class that reads and writes by named statements."""

    @abstractmethod
    def _read(self, name: str, **values: Any) -> list[Any]: ...

    @abstractmethod
    def _write(self, name: str, values: dict[str, Any]) -> int: ...

    def recurring(self, name: str) -> RecurringRow | None:
        """See RecurringTables."""
        return next(map(recurring_of, self._read("recurring_by_name", recurring=name)), None)

    def all_recurring(self) -> list[RecurringRow]:
        """See RecurringTables."""
        return [recurring_of(columns) for columns in self._read("all_recurring")]

    def due_recurring(self, on_s: float, wall_s: float, limit: int) -> list[RecurringRow]:
        """See RecurringTables."""
        found = self._read("due_recurring", on_s=on_s, wall_s=wall_s, limit=limit)
        return [recurring_of(columns) for columns in found]

    def next_recurring(self) -> tuple[float | None, float | None]:
        """See RecurringTables."""
        ((on_s, wall_s),) = self._read("next_recurring")
        return on_s, wall_s

    def put_recurring(self, row: RecurringRow) -> None:
        """See RecurringTables."""
        values = {
            "name": row.name,
            "recurring_id": bytes.fromhex(row.recurring_id),
            "look_on_s": row.look_on_s,
            "look_wall_s": row.look_wall_s,
            "spec": msgspec.json.encode(row.spec),
            "progress": msgspec.json.encode(row.progress),
        }
        self._write("put_recurring", values)

    def delete_recurring(self, name: str) -> None:
        """See RecurringTables."""
        self._write("delete_recurring", {"recurring": name})


class MemoryRecurring:
    """The table in memory, for a class that keeps an undo list."""

    _undo: list[Callable[[], None]]

    def __init__(self) -> None:
        """Start empty."""
        super().__init__()
        self.recurring_rows: dict[str, RecurringRow] = {}

    def recurring(self, name: str) -> RecurringRow | None:
        """See RecurringTables."""
        return self.recurring_rows.get(name)

    def all_recurring(self) -> list[RecurringRow]:
        """See RecurringTables."""
        return [row for _, row in sorted(self.recurring_rows.items())]

    def due_recurring(self, on_s: float, wall_s: float, limit: int) -> list[RecurringRow]:
        """See RecurringTables."""
        due = [
            row
            for row in self.all_recurring()
            if _is_upto(row.look_on_s, on_s) or _is_upto(row.look_wall_s, wall_s)
        ]
        return due[:limit]

    def next_recurring(self) -> tuple[float | None, float | None]:
        """See RecurringTables."""
        on_s = [row.look_on_s for row in self.recurring_rows.values() if row.look_on_s is not None]
        wall_s = [row.look_wall_s for row in self.recurring_rows.values() if row.look_wall_s is not None]
        return min(on_s, default=None), min(wall_s, default=None)

    def put_recurring(self, row: RecurringRow) -> None:
        """See RecurringTables."""
        self._set_recurring(row.name, row)

    def delete_recurring(self, name: str) -> None:
        """See RecurringTables."""
        self._set_recurring(name, None)

    def _set_recurring(self, name: str, row: RecurringRow | None) -> None:
        before = self.recurring_rows.get(name)
        self._place_recurring(name, row)
        self._undo.append(lambda: self._place_recurring(name, before))

    def _place_recurring(self, name: str, row: RecurringRow | None) -> None:
        if row is None:
            self.recurring_rows.pop(name, None)
        else:
            self.recurring_rows[name] = row


def _is_upto(at: float | None, now: float) -> bool:
    return at is not None and at <= now
