"""The one thread that owns core and ledger. Jobs that wait are committed together, then answered, in order.

Owns the group commit: an answer leaves here only after the commit that holds its work is synced.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from cloud_coordinator.core.core import CoordinatorCore
from cloud_coordinator.ledger.port import Ledger
from skerry.clock import Clock
from skerry.errors import NotConnected, SkerryError, StorageFailed

log = logging.getLogger(__name__)

T = TypeVar("T")
Job = Callable[[CoordinatorCore], Any]
Answer = Callable[[Any, BaseException | None], None]

#: Jobs committed together at most: bounds how long the first of them waits.
GROUP = 128
#: Jobs that may wait; more are refused, and what was refused is sent again by its sender.
WAITING_LIMIT = 20_000


class CoreThread:
    """Runs jobs on the core, one at a time, grouped into commits."""

    def __init__(self, core: CoordinatorCore, ledger: Ledger, clock: Clock) -> None:
        """Take over core and ledger: nobody else may touch them until stop() returned."""
        self._core = core
        self._ledger = ledger
        self._clock = clock
        self._jobs: queue.SimpleQueue[tuple[Job, Answer] | None] = queue.SimpleQueue()
        self._loop = asyncio.get_running_loop()
        #: Set when the thread ended by an error: the process must end too, and be started again.
        self.crashed = asyncio.Event()
        self._thread = threading.Thread(target=self._guarded, name="core", daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> int:
        """How many jobs wait."""
        return self._jobs.qsize()

    def post(self, job: Job, answer: Answer, *, may_shed: bool = True) -> bool:
        """Have a job done; answer(value, error) is called on the event loop after its commit.

        Returns False, and does nothing, when too many wait and this one may be shed.
        """
        if may_shed and self._jobs.qsize() >= WAITING_LIMIT:
            return False
        self._jobs.put((job, answer))
        return True

    async def run(self, job: Callable[[CoordinatorCore], T]) -> T:
        """Return what the job returns, after its commit.  Raises what it raises; StorageFailed."""
        future: asyncio.Future[T] = self._loop.create_future()

        def answer(value: T, error: BaseException | None) -> None:
            if future.done():
                return
            if error is None:
                future.set_result(value)
            else:
                future.set_exception(error)

        if not self.post(job, answer):
            raise NotConnected("the coordinator has more to do than it can: try again in a moment")
        async with asyncio.timeout(30):
            return await future

    async def stop(self) -> None:
        """Finish what waits, close the ledger, end the thread."""
        self._jobs.put(None)
        await asyncio.to_thread(self._thread.join)

    # --- the thread ---------------------------------------------------------------------------------------

    def _guarded(self) -> None:
        try:
            self._work()
        except BaseException:
            log.critical("the core's thread ended; the coordinator must be started again", exc_info=True)
            self._loop.call_soon_threadsafe(self.crashed.set)
            raise

    def _work(self) -> None:
        group: list[tuple[Job, Answer]] = []
        is_last = False
        while not is_last:
            group, is_last = self._gather()
            if group:
                self._deliver(self._commit(group))
        self._ledger.close()

    def _gather(self) -> tuple[list[tuple[Job, Answer]], bool]:
        group = []
        item = self._jobs.get()
        while item is not None:
            group.append(item)
            if len(group) >= GROUP:
                return group, False
            try:
                item = self._jobs.get_nowait()
            except queue.Empty:
                return group, False
        return group, True

    def _commit(self, group: list[tuple[Job, Answer]]) -> list[tuple[Answer, Any, BaseException | None]]:
        done: list[tuple[Answer, Any, BaseException | None]] = []
        try:
            with self._ledger.transaction():
                done = [self._do(job, answer) for job, answer in group]
        except StorageFailed as error:
            log.error("nothing of a commit of %d was kept: %s", len(group), error)
            self._reload()
            return [(answer, None, error) for _, answer in group]
        return done

    def _do(self, job: Job, answer: Answer) -> tuple[Answer, Any, BaseException | None]:
        try:
            with self._ledger.transaction():
                return answer, job(self._core), None
        except SkerryError as error:
            return answer, None, error
        except Exception as error:
            # One bad message must not stop the others; the memory is made anew from the ledger.
            log.exception("a job failed inside; its changes were undone")
            self._reload()
            return answer, None, error

    def _reload(self) -> None:
        try:
            self._core.load(self._clock.now(), self._clock.wall_s())
        except StorageFailed as error:
            log.error("the ledger cannot be read: %s", error)

    def _deliver(self, answers: list[tuple[Answer, Any, BaseException | None]]) -> None:
        def call() -> None:
            for answer, value, error in answers:
                answer(value, error)

        try:
            self._loop.call_soon_threadsafe(call)
        except RuntimeError:
            log.debug("the event loop has ended; %d answers are not needed any more", len(answers))
