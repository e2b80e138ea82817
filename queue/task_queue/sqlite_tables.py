"""The tables in SQLite: values to columns and back, by named statements on one connection. Knows no rules."""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterable, Iterator, Sequence
from functools import cache
from heapq import merge
from operator import attrgetter
from typing import Any

import apsw
import msgspec

from skerry.errors import InvalidTransition, StoreDamaged
from skerry.ids import TaskId
from skerry.messages import Lane
from task_queue.limits import PRIORITIES
from task_queue.queries import columns_written, parameters, statements
from task_queue.recurring_tables import SqliteRecurring
from task_queue.rows import RememberedRow, TaskRow, stored_state
from task_queue.sqlite_appends import Appends
from task_queue.sqlite_outbox import SqliteOutbox
from task_queue.story import EventRow
from task_queue.task import Event, State

#: Rows of claimed and running tasks kept in memory at most; above it they are read again.
WINDOW_ROWS = 4096
_STATES = {state.value: state for state in State}
_IN_WINDOW = frozenset({State.READY, State.RUNNING})
_ROW_COLUMNS = len(TaskRow.__struct_fields__)
_EVENT_COLUMNS = len(EventRow.__struct_fields__)

Values = tuple[Any, ...] | dict[str, Any]


def task_of(columns: Sequence[Any]) -> TaskRow:
    """Return a row of the task table as a value.  Raises StoreDamaged when it cannot be one."""
    seq, task_id, state, priority, turn, kind, is_once, *rest = columns
    try:
        return TaskRow(seq, TaskId(task_id.hex()), _STATES[state], priority, turn, kind, bool(is_once), *rest)
    except (KeyError, AttributeError) as error:
        raise StoreDamaged(f"row {seq} of the tasks holds what no task holds", row=seq) from error


def split_row(columns: Sequence[Any]) -> tuple[TaskRow, bytes, list[EventRow]]:
    """Return a joined row of task, body and, where it goes on, the newest two events."""
    body, *events = columns[_ROW_COLUMNS:]
    both = (events[_EVENT_COLUMNS:], events[:_EVENT_COLUMNS])
    story = [EventRow(*event) for event in both if event and event[0] is not None]
    return task_of(columns[:_ROW_COLUMNS]), body or b"", story


@cache
def _binder(name: str) -> Callable[[Any], tuple[Any, ...]]:
    """Return what takes from a value the columns that a statement binds, in its order."""
    names = parameters(name)
    take: Callable[[Any], tuple[Any, ...]] = attrgetter(*names)
    if "task_id" not in names:
        return take
    place = names.index("task_id")

    def take_with_id(row: Any) -> tuple[Any, ...]:
        values = list(take(row))
        values[place] = bytes.fromhex(values[place])
        return tuple(values)

    return take_with_id


@cache
def _statement_of(event: Event, changed: tuple[str, ...]) -> str:
    """Return the name of the statement that makes a transition; it must write what the rule has changed."""
    name = f"on_{event.value}"
    unwritten = set(changed) - columns_written(name)
    assert not unwritten, f"{name} does not write {sorted(unwritten)}"
    return name


class SqliteTables(SqliteRecurring, SqliteOutbox):
    """Tables on one connection. What can wait is written when something looks, or at last: see Appends."""

    def __init__(self, db: apsw.Connection) -> None:
        """Work on db, inside the transactions that its owner begins and ends."""
        self._db = db
        self._sql = statements()
        self._appends = Appends(db)
        self._window: dict[TaskId, TaskRow] = {}
        self._newest_task: str | None = None
        self._starts: dict[int, EventRow] = {}  #: of the running rows in the window, by number
        self._newest_remembered: str | None = None
        self._is_dirty = False

    @property
    def is_dirty(self) -> bool:
        """Whether something was written since it was last cleared; what waits is written now."""
        self._appends.write()
        return self._is_dirty

    @is_dirty.setter
    def is_dirty(self, is_dirty: bool) -> None:
        self._is_dirty = is_dirty

    def _ask(self, name: str, values: Values = ()) -> apsw.Cursor:
        self._appends.before(name)
        return self._db.execute(self._sql[name], values)

    def _read(self, name: str, **values: Any) -> list[Any]:
        return self._ask(name, values).fetchall()

    def _write(self, name: str, values: Values) -> int:
        self._ask(name, values)
        changed = self._db.changes()
        self._is_dirty = self._is_dirty or changed > 0
        return changed

    def _append(self, name: str, values: tuple[Any, ...]) -> None:
        """Add a row that is certain not to be there."""
        self._appends.add(name, values)
        self._is_dirty = True

    def _put(self, name: str, row: Any) -> int:
        """Write the columns of a value that the statement names."""
        return self._write(name, _binder(name)(row))

    def _tasks(self, name: str, **values: Any) -> list[TaskRow]:
        return [task_of(columns) for columns in self._read(name, **values)]

    def read_anew(self) -> None:
        """Forget what was remembered of the file: its owner has taken a transaction back."""
        self._appends.drop()
        self._forget_window()
        self.forget_newest()

    def forget_newest(self) -> None:
        """Forget which are the highest ids: rows came that no rule has added."""
        self._newest_task = self._newest_remembered = None

    def _forget_window(self) -> None:
        self._window.clear()
        self._starts.clear()

    def _hold(self, row: TaskRow) -> bool:
        """Keep the row of a claimed or running task as it is now, so that it need not be read again.

        Return whether it was kept before: then it is known what the file holds.
        """
        before = self._window.get(row.task_id)
        if before is None:
            return False
        self._starts.pop(before.last_event or 0, None)
        if row.state in _IN_WINDOW:
            self._window[row.task_id] = row
        else:
            del self._window[row.task_id]
        return True

    def task(self, task_id: TaskId) -> TaskRow | None:
        """See Tables."""
        held = self._window.get(task_id)
        if held is not None:
            return held
        return next(iter(self._tasks("task_by_id", task_id=bytes.fromhex(task_id))), None)

    def claimed(self, seqs: Sequence[int]) -> list[tuple[TaskRow, bytes]]:
        """See Tables."""
        if len(self._window) > WINDOW_ROWS:
            self._forget_window()
        rows = []
        for columns in self._ask("claimed", (str(list(seqs)),)) if seqs else ():
            row, body, _ = split_row(columns)
            self._window[row.task_id] = row
            rows.append((row, body))
        return rows

    def body(self, seq: int) -> bytes:
        """See Tables."""
        found = self._read("body", seq=seq)
        return bytes(found[0][0]) if found else b""

    def request(self, request_key: str) -> TaskId | None:
        """See Tables."""
        found = self._read("task_by_request", request_key=request_key)
        return TaskId(found[0][0].hex()) if found else None

    def insert(self, row: TaskRow, body: bytes) -> bool:
        """See Tables. An id above all others, without a key, cannot be known: its row can wait."""
        is_newest = row.task_id > self._newest()
        if is_newest and row.request_key is None:
            self._append("insert_task", _binder("insert_task")(row))
        elif self._put("insert_task", row) != 1:
            return False
        self._append("insert_body", (row.seq, body))
        if is_newest:
            self._newest_task = row.task_id
        return True

    def _newest(self) -> str:
        """Return the highest id of all tasks, empty without any."""
        if (known := self._newest_task) is not None:
            return known
        newest = self._read("newest_task")[0][0]
        self._newest_task = found = newest.hex() if newest else ""
        return found

    def move(self, row: TaskRow, event: Event, changed: Collection[str]) -> None:
        """See Tables."""
        name = _statement_of(event, tuple(changed))
        if self._hold(row):
            self._appends.move(name, row.seq, _binder(name)(row))
            self._is_dirty = True
        elif self._put(name, row) != 1:
            self._forget_window()
            stored = self.task(row.task_id)
            raise InvalidTransition(stored.state if stored else "absent", event)

    def amend(self, row: TaskRow) -> None:
        """See Tables."""
        if row.task_id in self._window:
            self._window[row.task_id] = msgspec.structs.replace(row, state=stored_state(row.state))
        self._put("amend_task", row)

    def delete_task(self, row: TaskRow) -> None:
        """See Tables."""
        if self._write("delete_task", (row.seq,)):
            self._window.pop(row.task_id, None)
            self._appends.add("delete_body", (row.seq,))
            self._appends.add("delete_story", (row.last_event or 0, 0))

    def remember(self, row: RememberedRow) -> None:
        """See Tables."""
        self._put("remember", row)
        self._newest_remembered = max(row.task_id, self._newest_id_remembered())

    def remembered(self, task_id: TaskId) -> RememberedRow | None:
        """See Tables."""
        if task_id > self._newest_id_remembered():
            return None
        for _, state, may_repeat, *rest in self._read("remembered", task_id=bytes.fromhex(task_id)):
            return RememberedRow(task_id, _STATES[state], bool(may_repeat), *rest)
        return None

    def _newest_id_remembered(self) -> str:
        """Return the highest id remembered: ids grow with time, so a new one needs no look into the table."""
        if (known := self._newest_remembered) is not None:
            return known
        ((newest,),) = self._read("newest_remembered")
        self._newest_remembered = found = newest.hex() if newest is not None else ""
        return found

    def forget(self, task_id: TaskId) -> None:
        """See Tables."""
        self._write("forget", (bytes.fromhex(task_id),))

    def forget_before(self, on_s: float, limit: int) -> int:
        """See Tables."""
        return self._write("forget_before", (limit, on_s))

    def append_event(self, event: EventRow) -> None:
        """See Tables."""
        if event.what == Event.STARTED:
            self._starts[event.id] = event
        self._append("append_event", _binder("append_event")(event))

    def replace_note(self, event: EventRow) -> bool:
        """See Tables."""
        return self._put("replace_note", event) == 1

    def event(self, number: int) -> EventRow | None:
        """See Tables."""
        if number in self._starts:
            return self._starts[number]
        return next((EventRow(*columns) for columns in self._read("event", id=number)), None)

    def shorten_story(self, newest: int, keep: int) -> None:
        """See Tables."""
        self._write("delete_story", (newest, keep))

    def first_open(self, queue_key: str) -> TaskRow | None:
        """See Tables."""
        return next(iter(self._tasks("first_open", queue_key=queue_key)), None)

    def ready(self, leases: Container[int]) -> Iterator[int]:
        """See Tables."""
        return (seq for (seq,) in self._ask("ready") if seq not in leases)

    def still_ready(self, seqs: Iterable[int]) -> set[int]:
        """Return those that are numbers of ready tasks: what the file holds may have changed under them."""
        return {found for seq in seqs for (found,) in self._read("is_ready", seq=seq)}

    def oldest_ready(self, leases: Container[int]) -> Iterator[int]:
        """See Tables."""
        by_turn = merge(*(self._ask("ready_of", (priority,)) for priority in PRIORITIES))
        yield from (seq for _, seq in by_turn if seq not in leases)

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

    def mark_inbox(self, source: str, epoch: str, lane: Lane, upto: int) -> None:
        """See Tables."""
        self._write("mark_inbox", (source, epoch, lane, upto))

    def put_meta(self, name: str, value: bytes) -> None:
        """See Tables."""
        self._write("put_meta", (name, value))
