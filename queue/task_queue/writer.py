"""One thread that owns a store's commits: what waits is committed together, and answered once it is synced.

Knows nothing of tasks; one synced commit for many waiting submitters is what makes full durability cheap.
While a commit is being synced, an event loop answers the one before and gathers the next: what it submits in
one of its turns is shown to the thread at once, so that waiters that were answered together stay together.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from skerry.clock import Clock
from skerry.errors import QueueError, StoreDamaged
from task_queue.mailbox import Letter, Mailbox, settle
from task_queue.operations import Answer, Operation, TrimOutbox
from task_queue.store import Store

log = logging.getLogger(__name__)

_T = TypeVar("_T")
_Posts = dict[Mailbox[Any], list[Letter[Any]]]

#: Operations in one commit at most: what a single slow one would hold up.
COMMIT_LIMIT = 1000
#: A trim of the outbox waits this long for a commit to go with, seconds: a sync of its own would hold up the
#: next commit here, and every other process's on the same disk. Lost with a power cut, it is asked for again.
COMPANY_S = 0.2
#: Idle seconds after which unused space is given back.
TIDY_AFTER_S = 5.0
#: Chores that cannot wait for an idle moment are done between commits, one slice in so many seconds.
CHORES_EVERY_S = 0.2


class _ForThread:
    """A submission whose submitter holds a Future."""

    __slots__ = ("future", "ops")

    def __init__(self, ops: Sequence[Operation]) -> None:
        self.ops = ops
        self.future: Future[list[Answer]] = Future()

    def begins(self) -> bool:
        """Decide whether it is still wanted; from here on it cannot be cancelled."""
        return self.future.set_running_or_notify_cancel()

    def settle(self, answers: list[Answer] | None, error: BaseException | None, posts: _Posts) -> None:
        """Tell the submitter."""
        if answers is None:
            self.future.set_exception(error)
        else:
            self.future.set_result(answers)


class _ForLoop:
    """A submission whose answer goes into a mailbox."""

    __slots__ = ("mailbox", "ops", "tag")

    def __init__(self, ops: Sequence[Operation], mailbox: Mailbox[Any], tag: Any) -> None:
        self.ops = ops
        self.mailbox = mailbox
        self.tag = tag

    def begins(self) -> bool:
        """Decide whether it is still wanted: a coroutine that was cancelled before does not want it."""
        return not (isinstance(self.tag, asyncio.Future) and self.tag.cancelled())

    def settle(self, answers: list[Answer] | None, error: BaseException | None, posts: _Posts) -> None:
        """Put the answer to the others of its mailbox."""
        posts.setdefault(self.mailbox, []).append(Letter(self.tag, self.ops, answers, error))


_Waiting = _ForThread | _ForLoop


class StoreWriter:
    """Serialises commits to a store. Submitting is thread-safe; answers arrive in the order of submission."""

    _awaited: Mailbox[asyncio.Future[list[Answer]]] | None = (
        None  #: of commit(), on the loop that called last
    )

    def __init__(self, store: Store, clock: Clock) -> None:
        """Start the threads. The store stays its owner's to close, after the writer."""
        self._store = store
        self._clock = clock
        self._waiting: deque[_Waiting] = deque()
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._is_closing = False
        self._has_chores = store.salvaged is not None  #: idle moments are not waited for
        self._did_chores_s = 0.0
        #: Holds the error that ended the thread, if one did: the process must end too, and be started again.
        self.broken: Future[None] = Future()
        self._readers = ThreadPoolExecutor(max_workers=1, thread_name_prefix="store-reader")
        self._thread = threading.Thread(target=self._run, name="store-writer", daemon=True)
        self._thread.start()

    @property
    def store(self) -> Store:
        """The store, for reads from any thread."""
        return self._store

    def submit(self, ops: Sequence[Operation]) -> Future[list[Answer]]:
        """Queue operations that belong together.

        The future holds their answers once they are synced, or StorageFailed when none of them took effect.
        Raises QueueError after close().
        """
        waiting = _ForThread(ops)
        self._add(waiting)
        self._wake()
        return waiting.future

    def hand_over(self, ops: Sequence[Operation], mailbox: Mailbox[_T], tag: _T) -> None:
        """Do as submit(), from the mailbox's event loop: what became of it comes there under `tag`.

        A tag that is a future, and was cancelled before its commit begins, takes the submission back.
        """
        self._add(_ForLoop(ops, mailbox, tag))
        mailbox.soon(self._wake)

    async def commit(self, ops: Sequence[Operation]) -> list[Answer]:
        """Do as submit() and wait without blocking the event loop."""
        loop = asyncio.get_running_loop()
        mailbox = self._awaited
        if mailbox is None or mailbox.loop is not loop:
            mailbox = self._awaited = Mailbox(_answer_futures)
        answer: asyncio.Future[list[Answer]] = loop.create_future()
        self.hand_over(ops, mailbox, answer)
        return await answer

    def read(self, ask: Callable[[Store], _T]) -> Future[_T]:
        """Run a read on the reading thread: it holds up no commit.

        One that meets damage is run once more when the committing thread has dealt with that.
        """
        return self._readers.submit(self._read, ask)

    def _read(self, ask: Callable[[Store], _T]) -> _T:
        try:
            return ask(self._store)
        except StoreDamaged:
            self.submit(()).result()
            return ask(self._store)

    def close(self) -> None:
        """Commit what waits and stop. A second call does nothing."""
        with self._changed:
            self._is_closing = True
            self._changed.notify()
        self._thread.join()
        self._readers.shutdown()

    def _add(self, waiting: _Waiting) -> None:
        with self._lock:  # with each submission: the condition's own way to it is twice as long
            if self._is_closing:
                raise QueueError("the queue is closing: nothing more is accepted")
            self._waiting.append(waiting)

    def _wake(self) -> None:
        with self._changed:
            self._changed.notify()

    def _run(self) -> None:
        try:
            self._work()
        except BaseException as error:
            self._break(error)

    def _break(self, error: BaseException) -> None:
        """Refuse everything from now on, rather than let it wait for a thread that is gone."""
        log.critical("the thread that writes the queue ended: the agent must start again", exc_info=error)
        with self._changed:
            self._is_closing = True
            waiting, self._waiting = list(self._waiting), deque()
        posts: _Posts = {}
        for one in waiting:
            one.settle(None, QueueError(f"the thread that writes the queue ended: {error!r}"), posts)
        for mailbox, letters in posts.items():
            mailbox.post(letters)
        self.broken.set_exception(error)

    def _work(self) -> None:
        while True:
            batch = self._next_batch()
            if batch is None:
                return
            if batch:
                self._commit(batch)
            if not batch or (self._has_chores and time.monotonic() >= self._did_chores_s + CHORES_EVERY_S):
                self._tidy()

    def _next_batch(self) -> list[_Waiting] | None:
        """Return what waits, an empty batch after idling, None when closed and drained."""
        with self._changed:
            idle_s = 0.0 if self._has_chores else TIDY_AFTER_S
            if not self._waiting and not self._is_closing and not self._changed.wait(idle_s):
                return []
            if not self._waiting:
                return None if self._is_closing else []
            self._changed.wait_for(self._is_worth_a_sync, COMPANY_S)
            return self._take()

    def _is_worth_a_sync(self) -> bool:
        return self._is_closing or any(type(op) is not TrimOutbox for one in self._waiting for op in one.ops)

    def _take(self) -> list[_Waiting]:
        batch: list[_Waiting] = []
        count = 0
        while self._waiting and (not batch or count + len(self._waiting[0].ops) <= COMMIT_LIMIT):
            waiting = self._waiting.popleft()
            if waiting.begins():
                batch.append(waiting)
                count += len(waiting.ops)
        return batch

    def _commit(self, batch: list[_Waiting]) -> None:
        """Commit a batch and post its answers, one hop for each event loop."""
        posts: _Posts = {}
        self._settle(batch, posts)
        for mailbox, letters in posts.items():
            mailbox.post(letters)

    def _settle(self, batch: list[_Waiting], posts: _Posts) -> None:
        """Commit a batch; when that fails each submission is tried alone: one fails for itself only."""
        merged = [op for one in batch for op in one.ops]
        try:
            answers = iter(self._store.apply(merged, now=self._clock.now()))
        except Exception as error:
            if len(batch) == 1:
                batch[0].settle(None, error, posts)
                return
            for one in batch:
                self._settle([one], posts)
            return
        for one in batch:
            one.settle(_first(answers, len(one.ops)), None, posts)

    def _tidy(self) -> None:
        try:
            self._has_chores = self._store.tidy()
        except QueueError:
            # Nothing was promised: the same trouble meets the next commit, whose submitter hears of it.
            self._has_chores = False
        self._did_chores_s = time.monotonic()


def _first(answers: Iterator[Answer], count: int) -> list[Answer]:
    return [next(answers) for _ in range(count)]


def _answer_futures(letters: list[Letter[asyncio.Future[list[Answer]]]]) -> None:
    for letter in letters:
        settle(letter.tag, letter)
