"""Bringing the rows of a damaged file over into a fresh store, page by page, each page exactly once.

How far it has come is written in the same commits as the rows, so that it goes on after a kill or a power
cut, and a row that has ended meanwhile is not brought over a second time. Owns the course and the counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import cached_property
from typing import Any

import apsw
import msgspec

from skerry.errors import StorageFailed
from skerry.messages import Lane, StoreSalvaged
from task_queue import losses
from task_queue.damage import spans
from task_queue.damage.quarantine import Copy
from task_queue.damage.raw_pages import RawPages
from task_queue.damage.raw_search import entries, found_in, leaf_of
from task_queue.damage.remains import BY_ID, BY_KEY, Remains, Shape
from task_queue.damage.salvage_plan import Plan
from task_queue.damage.salvage_rows import Putting
from task_queue.operations import Advance, DropRecurring, Enqueue, Operation, PutRecurring
from task_queue.records import Unreadable, Value
from task_queue.store import scoped_key
from task_queue.task import Event, State
from task_queue.transaction import Transaction

#: The value of meta under which the progress is kept while a salvage is under way.
PROGRESS = "store.salvage"
#: And the one under which the counts of the latest stay.
STORY = "store.salvaged"
#: The epochs of the stores whose rows this one took over, the latest last.
EPOCHS = "store.epochs_before"
_OWN = (PROGRESS, STORY, EPOCHS)
_BY_QUEUE_KEY, _PLACED, _REMEMBERED_KEY = "task_key", "task_placed", "remembered_request"
_BODY = "body"


class Progress(msgspec.Struct, omit_defaults=True):
    """How far a salvage has come. session: of the store when it was damaged."""

    copy: str
    session: int = 0
    units: int = 0  #: done, from the front
    ahead: spans.Spans = []  #: units done before their turn, none below `units`
    ordered: str = ""  #: ordering keys are put right up to this one
    kept: dict[str, int] = {}
    lost: dict[str, int] = {}
    expected: dict[str, int] = {}  #: rows that the old counters told of
    trimmed: dict[Lane, int] = {}  #: of the old outbox
    then: dict[str, Any] | None = None  #: the progress of an older salvage, which goes on after this one


class Salvage:
    """One salvage under way: its owner gives it transactions, and closes it."""

    def __init__(
        self,
        copy: Copy,
        progress: Progress,
        raw: RawPages,
        remains: Remains,
        *,
        db: apsw.Connection,
        shapes: dict[str, Shape],
        session: int,
        older: Salvage | None = None,
    ) -> None:
        """db: the connection that writes the fresh store.  session: the fresh store's, now.

        older: the one that goes on after this one; what is asked for is brought over from its file too.
        """
        self.copy = copy
        self.progress = progress
        self._raw = raw
        self._remains = remains
        self._shapes = shapes
        self._is_interrupted = session != progress.session
        self._body_range = (0, 0)
        self._older = older
        self._newer: Salvage | None = None
        if older is not None:
            older._newer = self  # noqa: SLF001
        self._is_bringing = False
        self._whole_keys: set[str] = set()  #: ordering keys all of whose tasks are here
        self._kept = msgspec.json.encode(progress)
        self.attach(db)

    def attach(self, db: apsw.Connection) -> None:
        """Write on this connection from now on: the store was opened anew."""
        self._db = db
        if self._older is not None:
            self._older.attach(db)
        self._putting = Putting(
            db,
            self._shapes,
            is_interrupted=self._is_interrupted,
            trimmed=self.progress.trimmed,
            is_marked_placed=lambda seq: seq in self._placed,
            confirms=self._confirms,
        )

    def keep(self) -> None:
        """The commit in which something was brought over is on disk."""
        self._kept = msgspec.json.encode(self.progress)
        if self._older is not None:
            self._older.keep()

    def undo(self) -> None:
        """It is not: that is still to be brought over."""
        self.progress = msgspec.json.decode(self._kept, type=Progress)
        self._body_range = (0, 0)
        self._whole_keys.clear()
        if self._older is not None:
            self._older.undo()

    def copies(self) -> set[str]:
        """Return the names of the copies that this salvage reads, and those that go on after it."""
        names = {self.copy.name}
        then = self.progress.then
        while then is not None:
            names.add(str(then.get("copy", "")))
            then = then.get("then")
        return names

    def close(self) -> None:
        """Let go of the old file."""
        self._raw.close()
        if self._older is not None:
            self._older.close()

    @cached_property
    def _plan(self) -> Plan:
        return Plan(self._raw, self._remains, tuple(self._shapes))

    @cached_property
    def _placed(self) -> frozenset[int]:
        """Open tasks of a coordinator, by row: it will find out by itself that one is missing."""
        pages = self._remains.of(_PLACED)
        rows = [row[1] for page in pages for row in self._raw.rows(page) if row is not None]
        return frozenset(row[0] for row in rows if isinstance(row[0], int))

    # --- the course

    def work(self, tx: Transaction, is_time_up: Callable[[], bool]) -> bool:
        """Bring over what time allows; True when that was the last. What is left of it is in `progress`."""
        is_done = self._work(tx, is_time_up)
        losses.settle(tx)
        return is_done

    def _work(self, tx: Transaction, is_time_up: Callable[[], bool]) -> bool:
        with self._at_work():
            return self._work_on(tx, is_time_up)

    @contextmanager
    def _at_work(self) -> Iterator[None]:
        """A page is under way: what its rows lead to, as the end of an attempt, cannot ask for others."""
        self._is_bringing = True
        try:
            yield
        finally:
            self._is_bringing = False

    def _work_on(self, tx: Transaction, is_time_up: Callable[[], bool]) -> bool:
        progress = self.progress
        while (number := spans.take_from(progress.ahead, progress.units)) < len(self._plan):
            self._do(tx, number)
            progress.units = number + 1
            if is_time_up():
                self._save(tx)
                return False
        progress.units = number
        if progress.then is not None or self._put_keys_in_order(tx, is_time_up):
            self._finish(tx)
            return True
        self._save(tx)
        return False

    def bring(self, tx: Transaction, operations: Iterable[Operation]) -> bool:
        """Bring over at once what these operations are about, as far as it is not here; say if any came.

        Raises StorageFailed when the old file does not say whether it has that: ask again in a while.
        """
        try:
            with self._at_work():
                has_come = any(
                    [self._bring_all_of(tx, op) | self._bring_story_of(tx, op) for op in operations]
                )
        except (Unreadable, IndexError, TypeError) as error:
            raise StorageFailed(
                "the queue's database was damaged and is being brought back: what is asked for cannot be "
                "looked up in it yet; try again in a moment"
            ) from error
        if has_come:
            self._save(tx)
        return has_come

    def bring_key(self, tx: Transaction, queue_key: str) -> bool:
        """Bring over every task with an ordering key; False when it cannot be told which those are."""
        if self._is_bringing:
            return False
        if queue_key in self._whole_keys:
            return True
        try:
            with self._at_work():
                self._bring_tasks(tx, _BY_QUEUE_KEY, queue_key)
        except (Unreadable, IndexError, TypeError):
            return False
        finally:
            self._save(tx)
        self._whole_keys.add(queue_key)
        return True

    def has(self, task_id: str) -> bool:
        """Decide whether the old file may hold a task."""
        try:
            if any(True for _ in self._seqs(BY_ID, bytes.fromhex(task_id))):
                return True
        except (Unreadable, IndexError, TypeError):
            return True
        return self._older is not None and self._older.has(task_id)

    def _bring_all_of(self, tx: Transaction, op: Operation) -> bool:
        """Bring over what an operation is about, from this file and then from the older one."""
        has_come = False
        if isinstance(op, PutRecurring | DropRecurring | Advance):
            has_come |= self._bring_table(tx, "recurring")
        task_id = getattr(op, "task_id", None)
        if task_id:
            name = bytes.fromhex(task_id)
            has_come |= self._bring_remembered(tx, name)
            has_come |= self._bring_tasks(tx, BY_ID, name)
        if isinstance(op, Enqueue):
            task = op.task
            request_key = scoped_key(task.tenant, task.idempotency_key)
            if request_key is not None:
                if not self._is_over("remembered"):
                    for entry in self._entries(_REMEMBERED_KEY, request_key):
                        if isinstance(entry[-1], bytes):
                            has_come |= self._bring_remembered(tx, entry[-1])
                has_come |= self._bring_tasks(tx, BY_KEY, request_key)
            queue_key = scoped_key(task.tenant, task.ordering_key)
            if queue_key is not None and queue_key not in self._whole_keys:
                has_come |= self._bring_tasks(tx, _BY_QUEUE_KEY, queue_key)
        if self._older is not None:
            has_come |= self._older._bring_all_of(tx, op)  # noqa: SLF001
        return has_come

    def _bring_tasks(self, tx: Transaction, index: str, key: str | bytes) -> bool:
        """Bring over the tasks that an index names under a key; one that cannot be read is marked as lost."""
        has_come = False
        for seq in self._seqs(index, key):
            if not self._putting.has(seq):
                has_come |= self._bring_row(tx, "task", seq)
            if index in (BY_ID, BY_KEY) and not self._putting.has(seq):
                has_come |= self._mark(tx, index, (0, [key, seq]))
        if index == _BY_QUEUE_KEY and self._older is not None:
            has_come |= self._older._bring_tasks(tx, index, key)  # noqa: SLF001
        return has_come

    def _bring_story_of(self, tx: Transaction, op: Operation) -> bool:
        task_id = getattr(op, "task_id", None)
        if not task_id:
            return False
        has_come = self._bring_story(tx, bytes.fromhex(task_id))
        return has_come | (self._older is not None and self._older._bring_story_of(tx, op))  # noqa: SLF001

    def _bring_story(self, tx: Transaction, task_id: bytes) -> bool:
        """Bring over the newest events of a task: they say how it ended."""
        has_come = False
        sql = "SELECT last_event FROM task WHERE task_id = ?"
        for _ in range(2):
            found = self._db.execute(sql, (task_id,)).fetchall()
            if found and isinstance(found[0][0], int):
                with suppress(Unreadable, IndexError):  # it comes with its page, or is lost
                    has_come |= self._bring_row(tx, "event", found[0][0])
            sql = "SELECT prev FROM event WHERE id = (SELECT last_event FROM task WHERE task_id = ?)"
        return has_come

    def _bring_remembered(self, tx: Transaction, task_id: bytes) -> bool:
        if self._is_over("remembered"):
            return False
        root = self._remains.roots.get("remembered")
        if root is None:
            raise Unreadable("a table is not named any more")
        pages = {page for page, _ in found_in(self._raw, root, task_id)}
        return any([self._bring_unit(tx, "remembered", page) for page in pages])

    def _bring_table(self, tx: Transaction, table: str) -> bool:
        units = [] if self._is_over(table) else self._plan.span(table)
        return any([self._bring_unit(tx, table, self._plan.unit(number)[1]) for number in units])

    def _is_over(self, table: str) -> bool:
        """Decide whether every page of a table is brought over."""
        return self._plan.span(table).stop <= self.progress.units

    def _seqs(self, index: str, key: str | bytes) -> Iterator[int]:
        return (entry[-1] for entry in self._entries(index, key) if isinstance(entry[-1], int))

    def _entries(self, index: str, key: str | bytes) -> Iterator[list[Value]]:
        root = self._remains.roots.get(index)
        if root is None:
            raise Unreadable("an index is not named any more")
        return entries(self._raw, root, key)

    def _confirms(self, index: str, key: str, seq: int) -> bool:
        try:
            return seq in self._seqs(index, key)
        except (Unreadable, IndexError, TypeError):
            return False

    def _bring_row(self, tx: Transaction, table: str, row_id: int) -> bool:
        """Bring the page of a row over, unless that is done; say whether it was not."""
        page, low, high = leaf_of(self._raw, self._remains.roots.get(table, 0), row_id)
        if table == _BODY:
            self._body_range = (low, high)
        return self._bring_unit(tx, table, page)

    def _bring_unit(self, tx: Transaction, table: str, page: int) -> bool:
        """Bring a page over, unless that is done; say whether it was not."""
        number = self._plan.number_of(table, page)
        progress = self.progress
        if number < progress.units or spans.has(progress.ahead, number):
            return False
        spans.add(progress.ahead, number)
        self._do(tx, number)
        return True

    # --- one page

    def _do(self, tx: Transaction, number: int) -> None:
        table, page = self._plan.unit(number)
        for row in self._raw.rows(page):
            if table in (BY_ID, BY_KEY):
                self._mark(tx, table, row)
            elif row is None or not self._take(tx, table, *row):
                self._count(self.progress.lost, table)
            else:
                self._count(self.progress.kept, table)

    def _take(self, tx: Transaction, table: str, row_id: int, values: list[Value]) -> bool:
        if table == "meta" and values[0] in _OWN:
            return True
        if (
            table == "task"
            and _BODY in self._shapes
            and not self._body_range[0] < row_id <= self._body_range[1]
        ):
            self._bring_body(tx, row_id)
        elif table == "task" and self._newer is not None:
            self._newer._bring_body(tx, row_id)  # noqa: SLF001  # it had come before its task
        return self._putting.put(tx, table, row_id, values)

    def _bring_body(self, tx: Transaction, seq: int) -> None:
        if self._newer is not None:
            self._newer._bring_body(tx, seq)  # noqa: SLF001
        try:
            self._bring_row(tx, _BODY, seq)
        except (Unreadable, IndexError):
            return  # it comes with its page, or is lost

    def _mark(self, tx: Transaction, table: str, row: tuple[int, list[Value]] | None) -> bool:
        """Keep what an index says of a task whose row is lost; say whether that is new."""
        if row is None or len(row[1]) != 2 or not isinstance(row[1][1], int):
            return False
        name, seq = row[1][0], row[1][1]
        if table == BY_KEY and isinstance(name, str):
            is_new = self._putting.mark_key(tx, name, seq)
        elif table == BY_ID and isinstance(name, bytes) and len(name) == 16:
            is_new = not self._putting.has(seq) and self._putting.mark_lost(tx, name, seq)
        else:
            return False
        if is_new:
            self._count(self.progress.kept, "mark")
        return is_new

    def _count(self, counts: dict[str, int], table: str) -> None:
        counts[table] = counts.get(table, 0) + 1

    # --- the end

    def _put_keys_in_order(self, tx: Transaction, is_time_up: Callable[[], bool]) -> bool:
        """Let the first task of every ordering key go, whatever was lost before it; False: not done yet."""
        while True:
            found = self._db.execute(
                "SELECT queue_key FROM task WHERE queue_key IS NOT NULL AND state IN ('delayed', 'blocked', "
                "'ready', 'running', 'handed_over') AND queue_key > ? ORDER BY queue_key LIMIT 1",
                (self.progress.ordered,),
            ).fetchall()
            if not found:
                return True
            key = str(found[0][0])
            first = tx.tables.first_open(key)
            if first is not None and first.state is State.BLOCKED:
                tx.move(first, Event.UNBLOCKED, State.READY)
            self.progress.ordered = key
            if is_time_up():
                return False

    def _finish(self, tx: Transaction) -> None:
        """Say what was kept and what was lost; the salvage is over with this commit."""
        progress = self._with_older()
        if _BODY in self._shapes:
            self._db.execute(
                "INSERT INTO body (seq, body) "
                "SELECT seq, x'' FROM task WHERE seq NOT IN (SELECT seq FROM body)"
            )
            missing = self._db.changes() - progress.kept.get("mark", 0)
            if missing > progress.lost.get(_BODY, 0):
                progress.lost[_BODY] = missing
        for table, expected in progress.expected.items():
            missing = expected - progress.kept.get(table, 0)
            if missing > progress.lost.get(table, 0):
                progress.lost[table] = missing
        tx.book.salvage = progress.then
        if progress.then is None:
            self._db.execute("DELETE FROM meta WHERE name = ?", (PROGRESS,))
        else:
            progress.then.pop("ordered", None)  # with what has come from here, that is to be begun again
            tx.tables.put_meta(PROGRESS, msgspec.json.encode(progress.then))
        tx.tables.put_meta(STORY, msgspec.json.encode(self.report()))
        if tx.reports:
            tx.send(Lane.CONTROL, self.report(), key="store")

    def report(self) -> StoreSalvaged:
        """Return the counts, as the coordinator hears of them."""
        kept, lost = self.progress.kept, {table: n for table, n in self.progress.lost.items() if n}
        return StoreSalvaged(
            quarantined=self.copy.name,
            rows_kept=sum(kept.values()),
            rows_lost=sum(lost.values()),
            kept=dict(sorted(kept.items())),
            lost=dict(sorted(lost.items())),
        )

    def _with_older(self) -> Progress:
        """Return the progress with that of the older salvage, which may have come further."""
        if self._older is not None:
            self.progress.then = msgspec.to_builtins(self._older._with_older())  # noqa: SLF001
        return self.progress

    def _save(self, tx: Transaction) -> None:
        self._with_older()
        tx.book.salvage = msgspec.to_builtins(self.progress)
        tx.tables.put_meta(PROGRESS, msgspec.json.encode(self.progress))
