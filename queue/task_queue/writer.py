"""One thread that owns a store's commits: what waits is committed together, and answered once it is synced.

Knows nothing of tasks; one synced commit for many waiting submitters is what makes full durability cheap.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from skerry.clock import Clock
from skerry.errors import QueueError
from task_queue.operations import Answer, Operation, TrimOutbox
from task_queue.store import Store

_T = TypeVar("_T")
_Waiting = tuple[Sequence[Operation], "Future[list[Answer]]"]

#: Operations in one commit at most: what a single slow one would hold up.
COMMIT_LIMIT = 1000
#: A trim of the outbox waits this long for a commit to go with, seconds: a sync of its own would hold up the
#: next commit here, and every other process's on the same disk. Lost with a power cut, it is asked for again.
COMPANY_S = 0.2
#: Idle seconds after which unused space is given back.
TIDY_AFTER_S = 5.0


class StoreWriter:
    """Serialises commits to a store. Submitting is thread-safe; answers arrive in the order of submission."""

    def __init__(self, store: Store, clock: Clock) -> None:
        """Start the threads. The store stays its owner's to close, after the writer."""
        self._store = store
        self._clock = clock
        self._waiting: deque[_Waiting] = deque()
        self._changed = threading.Condition()
        self._is_closing = False
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
        future: Future[list[Answer]] = Future()
        with self._changed:
            if self._is_closing:
                raise QueueError("the queue is closing: nothing more is accepted")
            self._waiting.append((ops, future))
            self._changed.notify()
        return future

    async def commit(self, ops: Sequence[Operation]) -> list[Answer]:
        """Do as submit() and wait without blocking the event loop."""
        return await asyncio.wrap_future(self.submit(ops))

    def read(self, ask: Callable[[Store], _T]) -> Future[_T]:
        """Run a read on the reading thread: it holds up no commit."""
        return self._readers.submit(ask, self._store)

    def close(self) -> None:
        """Commit what waits and stop. A second call does nothing."""
        with self._changed:
            self._is_closing = True
            self._changed.notify()
        self._thread.join()
        self._readers.shutdown()

    def _run(self) -> None:
        while True:
            batch = self._next_batch()
            if batch is None:
                return
            if batch:
                self._commit(batch)
            else:
                self._tidy()

    def _next_batch(self) -> list[_Waiting] | None:
        """Return what waits, an empty batch after idling, None when closed and drained."""
        with self._changed:
            if not self._waiting and not self._is_closing and not self._changed.wait(TIDY_AFTER_S):
                return []
            if not self._waiting:
                return None if self._is_closing else []
            self._changed.wait_for(self._is_worth_a_sync, COMPANY_S)
            return self._take()

    def _is_worth_a_sync(self) -> bool:
        return self._is_closing or any(type(op) is not TrimOutbox for ops, _ in self._waiting for op in ops)

    def _take(self) -> list[_Waiting]:
        batch: list[_Waiting] = []
        count = 0
        while self._waiting and (not batch or count + len(self._waiting[0][0]) <= COMMIT_LIMIT):
            ops, future = self._waiting.popleft()
            if future.set_running_or_notify_cancel():
                batch.append((ops, future))
                count += len(ops)
        return batch

    def _commit(self, batch: list[_Waiting]) -> None:
        """Commit a batch; when that fails each submission is tried alone: one fails for itself only."""
        merged = [op for ops, _ in batch for op in ops]
        try:
            answers = iter(self._store.apply(merged, now=self._clock.now()))
        except Exception as error:
            if len(batch) == 1:
                batch[0][1].set_exception(error)
                return
            for waiting in batch:
                self._commit([waiting])
            return
        for ops, future in batch:
            future.set_result([next(answers) for _ in ops])

    def _tidy(self) -> None:
        try:
            self._store.tidy()
        except QueueError:
            # Nothing was promised: the same trouble meets the next commit, whose submitter hears of it.
            return
