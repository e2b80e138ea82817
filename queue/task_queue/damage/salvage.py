"""Bringing the rows of a damaged file over into a fresh store, page by page, each page exactly once.

How far it has come is written in the same commits as the rows, so that it goes on after a kill or a power
cut, and a row that has ended meanwhile is not brought over a second time. Owns the course and the counts;
what is brought over before its turn, and why, is the business of salvage_asked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cached_property
from typing import Any

import apsw
import msgspec

from skerry.messages import Lane, StoreSalvaged
from task_queue import losses
from task_queue.damage import spans
from task_queue.damage.old_file import OldFile
from task_queue.damage.remains import BY_ID, BY_KEY, Shape
from task_queue.damage.salvage_plan import Plan
from task_queue.damage.salvage_progress import Progress
from task_queue.damage.salvage_rows import Putting
from task_queue.records import Unreadable, Value
from task_queue.task import Event, State
from task_queue.transaction import Transaction

#: The value of meta under which the progress is kept while a salvage is under way.
PROGRESS = "store.salvage"
#: And the one under which the counts of the latest stay.
STORY = "store.salvaged"
#: The epochs of the stores whose rows this one took over, the latest last.
EPOCHS = "store.epochs_before"
_OWN = (PROGRESS, STORY, EPOCHS)
_BODY = "body"


class Salvage:
    """One salvage under way: its owner gives it transactions, and closes it."""

    def __init__(
        self,
        progress: Progress,
        old: OldFile,
        *,
        db: apsw.Connection,
        shapes: dict[str, Shape],
        session: int,
        older: Salvage | None = None,
    ) -> None:
        """db: the connection that writes the fresh store.  session: the fresh store's, now.

        older: the one that goes on after this one.
        """
        self.progress = progress
        self.old = old
        self.is_at_work = False  #: what rows lead to, as the end of an attempt, cannot ask for others now
        self.whole_keys: set[str] = set()  #: ordering keys all of whose tasks are here
        self._shapes = shapes
        self._is_interrupted = session != progress.session
        self._body_range = (0, 0)  #: rows of the page of documents that was the last to come
        self._kept = msgspec.json.encode(progress)
        self._newer: Salvage | None = None
        self._older = older
        if older is not None:
            older.go_on_after(self)
        self.attach(db)

    def go_on_after(self, newer: Salvage) -> None:
        """Take note of the salvage that this one waits for."""
        self._newer = newer

    def sources(self) -> Iterator[Salvage]:
        """Yield this salvage and the older ones that go on after it: rows may be in the file of each."""
        yield self
        if self._older is not None:
            yield from self._older.sources()

    def attach(self, db: apsw.Connection) -> None:
        """Write on this connection from now on: the store was opened anew."""
        self._db = db
        if self._older is not None:
            self._older.attach(db)
        self.putting = Putting(
            db,
            self._shapes,
            is_interrupted=self._is_interrupted,
            trimmed=self.progress.trimmed,
            is_marked_placed=lambda seq: seq in self.old.placed,
            confirms=self.old.confirms,
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
        self.whole_keys.clear()
        if self._older is not None:
            self._older.undo()

    def copies(self) -> set[str]:
        """Return the names of the copies that this salvage reads, and those that go on after it."""
        return self.progress.copies()

    def close(self) -> None:
        """Let go of the old file."""
        self.old.close()
        if self._older is not None:
            self._older.close()

    @cached_property
    def _plan(self) -> Plan:
        return Plan(self.old.raw, self.old.remains, tuple(self._shapes))

    # --- the course

    def work(self, tx: Transaction, is_time_up: Callable[[], bool]) -> bool:
        """Bring over what time allows; True when that was the last. What is left of it is in `progress`."""
        with self.at_work():
            is_done = self._work_on(tx, is_time_up)
        losses.settle(tx)
        return is_done

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """Have rows brought over in this block, and nothing asked for by what they lead to."""
        self.is_at_work = True
        try:
            yield
        finally:
            self.is_at_work = False

    def _work_on(self, tx: Transaction, is_time_up: Callable[[], bool]) -> bool:
        progress = self.progress
        while (number := spans.take_from(progress.ahead, progress.units)) < len(self._plan):
            self._do(tx, number)
            progress.units = number + 1
            if is_time_up():
                self.save(tx)
                return False
        progress.units = number
        if progress.then is not None or self._put_keys_in_order(tx, is_time_up):
            self._finish(tx)
            return True
        self.save(tx)
        return False

    # --- before their turn

    def bring_table(self, tx: Transaction, table: str) -> bool:
        """Bring every page of a table over that has not come; say whether there was one."""
        units = [] if self.is_over(table) else self._plan.span(table)
        return any([self.bring_page(tx, table, self._plan.unit(number)[1]) for number in units])

    def is_over(self, table: str) -> bool:
        """Decide whether every page of a table is brought over."""
        return self._plan.span(table).stop <= self.progress.units

    def bring_row(self, tx: Transaction, table: str, row_id: int) -> bool:
        """Bring the page of a row over, unless that is done; say whether it was not."""
        page, low, high = self.old.page_of(table, row_id)
        if table == _BODY:
            self._body_range = (low, high)
        return self.bring_page(tx, table, page)

    def bring_page(self, tx: Transaction, table: str, page: int) -> bool:
        """Bring a page over, unless that is done; say whether it was not."""
        number = self._plan.number_of(table, page)
        if self.progress.has_done(number):
            return False
        spans.add(self.progress.ahead, number)
        self._do(tx, number)
        return True

    # --- one page

    def _do(self, tx: Transaction, number: int) -> None:
        table, page = self._plan.unit(number)
        for row in self.old.raw.rows(page):
            if table in (BY_ID, BY_KEY):
                self.mark(tx, table, row)
            elif row is None or not self._take(tx, table, *row):
                self.progress.lose(table)
            else:
                self.progress.keep(table)

    def _take(self, tx: Transaction, table: str, row_id: int, values: list[Value]) -> bool:
        if table == "meta" and values[0] in _OWN:
            return True
        if table == "task" and _BODY in self._shapes:
            self.bring_body(tx, row_id)
        return self.putting.put(tx, table, row_id, values)

    def bring_body(self, tx: Transaction, seq: int) -> None:
        """Bring a task's document over before the task, which is checked against it.

        It may be in a newer file than the task: there it had come before.
        """
        if self._newer is not None:
            self._newer.bring_body(tx, seq)
        if not self._body_range[0] < seq <= self._body_range[1]:
            with suppress(Unreadable, IndexError):  # it comes with its page, or is lost
                self.bring_row(tx, _BODY, seq)

    def mark(self, tx: Transaction, table: str, row: tuple[int, list[Value]] | None) -> bool:
        """Keep what an index says of a task whose row is lost; say whether that is new."""
        if row is None or len(row[1]) != 2 or not isinstance(row[1][1], int):
            return False
        name, seq = row[1][0], row[1][1]
        if table == BY_KEY and isinstance(name, str):
            is_new = self.putting.mark_key(tx, name, seq)
        elif table == BY_ID and isinstance(name, bytes) and len(name) == 16:
            is_new = not self.putting.has(seq) and self.putting.mark_lost(tx, name, seq)
        else:
            return False
        if is_new:
            self.progress.keep("mark")
        return is_new

    # --- the end

    def _put_keys_in_order(self, tx: Transaction, is_time_up: Callable[[], bool]) -> bool:
        """Let the first task of every ordering key go, whatever was lost before it; False: not done yet."""
        while (key := self._next_open_key()) is not None:
            first = tx.tables.first_open(key)
            if first is not None and first.state is State.BLOCKED:
                tx.move(first, Event.UNBLOCKED, State.READY)
            self.progress.ordered = key
            if is_time_up():
                return False
        return True

    def _next_open_key(self) -> str | None:
        found = self._db.execute(
            "SELECT queue_key FROM task WHERE queue_key IS NOT NULL AND state IN ('delayed', 'blocked', "
            "'ready', 'running', 'handed_over') AND queue_key > ? ORDER BY queue_key LIMIT 1",
            (self.progress.ordered,),
        ).fetchall()
        return str(found[0][0]) if found else None

    def _finish(self, tx: Transaction) -> None:
        """Say what was kept and what was lost; the salvage is over with this commit."""
        progress = self.progress_with_older()
        if _BODY in self._shapes:
            progress.miss(_BODY, self._fill_bodies() - progress.kept.get("mark", 0))
        for table, expected in progress.expected.items():
            progress.miss(table, expected - progress.kept.get(table, 0))
        self._hand_over(tx, progress.then)
        tx.tables.put_meta(STORY, msgspec.json.encode(self.report()))
        if tx.reports:
            tx.send(Lane.CONTROL, self.report(), key="store")

    def _fill_bodies(self) -> int:
        """Give every task without a document an empty one, so that it ends by itself; return how many."""
        self._db.execute(
            "INSERT INTO body (seq, body) SELECT seq, x'' FROM task WHERE seq NOT IN (SELECT seq FROM body)"
        )
        return self._db.changes()

    def _hand_over(self, tx: Transaction, then: dict[str, Any] | None) -> None:
        """Have the older salvage go on, None: there is none."""
        tx.book.salvage = then
        if then is None:
            self._db.execute("DELETE FROM meta WHERE name = ?", (PROGRESS,))
        else:
            then.pop("ordered", None)  # with what has come from here, that is to be begun again
            tx.tables.put_meta(PROGRESS, msgspec.json.encode(then))

    def report(self) -> StoreSalvaged:
        """Return the counts, as the coordinator hears of them."""
        return self.progress.report()

    def progress_with_older(self) -> Progress:
        """Return the progress with that of the older salvage, which may have come further."""
        if self._older is not None:
            self.progress.then = msgspec.to_builtins(self._older.progress_with_older())
        return self.progress

    def save(self, tx: Transaction) -> None:
        """Write down, in this commit, how far it has come."""
        progress = self.progress_with_older()
        tx.book.salvage = msgspec.to_builtins(progress)
        tx.tables.put_meta(PROGRESS, msgspec.json.encode(progress))
