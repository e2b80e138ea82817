"""What stands in for the shells' threads on a virtual clock: commits that take a while, together, in order.

Owns when a commit happens and what a dead process leaves undone; the stores underneath are the real ones.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

from cloud_coordinator.writer import Answer as CoreAnswer
from cloud_coordinator.writer import CoreThread, Job
from skerry.clock import Clock
from skerry.errors import FederationError, QueueError, StorageFailed, StoreDamaged
from task_queue.mailbox import Letter, Mailbox
from task_queue.operations import Answer, Operation
from task_queue.store import Store
from task_queue.writer import StoreWriter

if TYPE_CHECKING:
    from cloud_coordinator.core.core import CoordinatorCore
    from cloud_coordinator.ledger.port import Ledger

_T = TypeVar("_T")

#: What a synced commit takes, seconds, unless the disk is slow.
COMMIT_S = 0.004
#: Between a commit and the moment its submitter hears of it, seconds: a process can die just then.
ANSWER_S = 0.0005


#: Operations, and who is told: a mailbox under a tag, or a future that takes the tag's place.
_Submission = tuple[Sequence[Operation], Mailbox[Any] | None, Any]


class VirtualWriter(StoreWriter):
    """A StoreWriter without a thread: what comes while a commit is on its way shares the next one."""

    def __init__(self, store: Store, clock: Clock, loop: asyncio.AbstractEventLoop) -> None:
        """loop: the process's own."""
        self._store = store
        self._clock = clock
        self._loop = loop
        self._queue: deque[_Submission] = deque()
        self._is_syncing = False
        self._is_dead = False
        self.broken: Future[None] = Future()
        self.commit_s: Callable[[], float] = lambda: COMMIT_S
        self.refuses: Callable[[], str] = lambda: ""  #: why the disk takes nothing now
        self.is_off: Callable[[], bool] = lambda: False  #: the power went: nothing is said any more
        #: Called with each commit, once the store has answered.
        self.committed: Callable[[Sequence[Operation], Sequence[Answer]], None] = lambda ops, answers: None

    def submit(self, ops: Sequence[Operation]) -> Future[list[Answer]]:
        """See StoreWriter."""
        future: Future[list[Answer]] = Future()
        self._take_in((ops, None, future))
        return future

    def hand_over(self, ops: Sequence[Operation], mailbox: Mailbox[_T], tag: _T) -> None:
        """See StoreWriter."""
        self._take_in((ops, mailbox, tag))

    def _take_in(self, submission: _Submission) -> None:
        if self._is_dead:
            raise QueueError("the queue is closing: nothing more is accepted")
        self._queue.append(submission)
        if not self._is_syncing:
            self._is_syncing = True
            self._loop.call_later(self.commit_s(), self._sync)

    def read(self, ask: Callable[[Store], _T]) -> Future[_T]:
        """See StoreWriter."""
        future: Future[_T] = Future()
        try:
            future.set_result(self._read(ask))
        except Exception as error:  # as a thread pool hands it on
            future.set_exception(error)
        return future

    def _read(self, ask: Callable[[Store], _T]) -> _T:
        """See StoreWriter: one that meets damage is made again once a commit has dealt with that."""
        try:
            return ask(self._store)
        except StoreDamaged:
            self._store.apply((), now=self._clock.now())
            return ask(self._store)

    def close(self) -> None:
        """See StoreWriter."""
        self._sync()
        self._is_dead = True

    def die(self) -> None:
        """End with the process: what is not committed never happens."""
        self._is_dead = True
        self._queue.clear()

    def _sync(self) -> None:
        self._is_syncing = False
        batch, self._queue = list(self._queue), deque()
        if batch and not self._is_dead:
            self._write(batch)

    def _write(self, batch: list[_Submission]) -> None:
        """See StoreWriter: one that fails alone fails for itself only."""
        merged = [op for ops, _, _ in batch for op in ops] if len(batch) > 1 else batch[0][0]
        try:
            if why := self.refuses():
                raise StorageFailed(why)
            answers = self._store.apply(merged, now=self._clock.now())
        except Exception as error:
            if len(batch) == 1:
                self._loop.call_later(ANSWER_S, _settle, batch, None, error)
                return
            for waiting in batch:
                self._write([waiting])
            return
        if self.is_off():
            return
        self.committed(merged, answers)
        self._loop.call_later(ANSWER_S, _settle, batch, answers)


def _settle(
    batch: list[_Submission], answers: Sequence[Answer] | None, error: BaseException | None = None
) -> None:
    """Tell every submitter of a commit what became of it, in one delivery for each mailbox."""
    rest = iter(answers or ())
    posts: dict[Mailbox[Any], list[Letter[Any]]] = {}
    for ops, mailbox, tag in batch:
        own = None if answers is None else list(islice(rest, len(ops)))
        if mailbox is not None:
            posts.setdefault(mailbox, []).append(Letter(tag, ops, own, error))
        elif own is None:
            tag.set_exception(error)
        else:
            tag.set_result(own)
    for mailbox, letters in posts.items():
        mailbox.post(letters)


class VirtualCoreThread(CoreThread):
    """A CoreThread without a thread."""

    def __init__(
        self, core: CoordinatorCore, ledger: Ledger, clock: Clock, loop: asyncio.AbstractEventLoop
    ) -> None:
        """loop: the process's own."""
        self._core = core
        self._ledger = ledger
        self._clock = clock
        self._loop = loop
        self._queue: deque[tuple[Job, CoreAnswer]] = deque()
        self._is_syncing = False
        self._is_dead = False
        self.commit_s: Callable[[], float] = lambda: COMMIT_S
        self.committed: Callable[[], None] = lambda: None  #: called with each commit
        self.also_waiting = 0  #: emulated: jobs of others that the core would have to do first
        self.crashed = asyncio.Event()

    @property
    def waiting(self) -> int:
        """See CoreThread."""
        return len(self._queue) + self.also_waiting

    def post(self, job: Job, answer: CoreAnswer, *, may_shed: bool = True) -> bool:
        """See CoreThread."""
        if self._is_dead:
            return False
        self._queue.append((job, answer))
        if not self._is_syncing:
            self._is_syncing = True
            self._loop.call_later(self.commit_s(), self._sync)
        return True

    def do_now(self, job: Callable[[CoordinatorCore], _T]) -> _T:
        """Do a job after those that wait, for a caller that a real thread would hold up until its commit.

        Raises what the job raises.
        """
        if self._is_dead:
            raise FederationError("the coordinator is closing")
        self._sync()
        ((_, value, error),) = self._commit([(job, lambda value, error: None)])
        if error is not None:
            raise error
        done: _T = value
        return done

    async def stop(self) -> None:
        """See CoreThread."""
        self._sync()
        self._is_dead = True
        self._ledger.close()

    def die(self) -> None:
        """End with the process."""
        self._is_dead = True
        self._queue.clear()

    def _sync(self) -> None:
        self._is_syncing = False
        group, self._queue = list(self._queue), deque()
        if group and not self._is_dead:
            self._loop.call_later(ANSWER_S, self._deliver, self._commit(group))
            self.committed()
