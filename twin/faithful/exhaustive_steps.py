"""How an agent's parts work in steps: jobs and commits one after the other, until nothing is left to be done.

Owns that order, which is the event loop's: jobs in the order in which they begin, whatever waits for the disk
committed together, the core told before whoever waits. A step may be cut off just before one of its commits.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Coroutine, Generator, Sequence
from typing import Any

from edge_agent.core.actions import Action, Commit
from edge_agent.core.core import AgentCore
from edge_agent.core.events import CommitFailed, Committed, Event, Observed
from skerry.clock import Clock
from skerry.errors import QueueError
from task_queue.memory_store import MemoryStore
from task_queue.operations import Answer, Operation

Job = Coroutine["Written", list[Answer], None]
Seen = Callable[[Sequence[Operation], Sequence[Answer]], None]


class CutOffError(Exception):
    """The process ends here, before the commit that was to come."""


class Written:
    """Operations that a job waits for. Awaited, it gives their answers."""

    def __init__(self, operations: Sequence[Operation]) -> None:
        """operations: of one commit."""
        self.operations = operations

    def __await__(self) -> Generator[Written, list[Answer], list[Answer]]:
        """Wait for the commit."""
        return (yield self)


class StepLoop:
    """One agent's core, its store, and what waits for either: the part of a CoreLoop that a link needs."""

    def __init__(
        self, core: AgentCore, store: MemoryStore, clock: Clock, perform: Callable[[Action], None]
    ) -> None:
        """perform: does what the core asks for, but commits."""
        self.core = core
        self.seen: list[Seen] = []
        self._store = store
        self._clock = clock
        self._perform = perform
        self._events: deque[Event] = deque()
        self._jobs: deque[tuple[Job, list[Answer] | Exception | None]] = deque()
        self._waiting: list[tuple[Sequence[Operation], int | Job]] = []
        self.commits = 0  #: of this step
        self.cut_off_at = 0  #: the commit of this step before which the process ends; 0: none
        self.before_first: Callable[[], None] | None = None  #: called when a step comes to its first commit

    def post(self, event: Event) -> None:
        """Give the core an event, and do what it asks for."""
        self._events.append(event)
        if len(self._events) > 1:
            return
        while self._events:
            for action in self.core.handle(self._events[0], self._clock.now()):
                if isinstance(action, Commit):
                    self._waiting.append((action.operations, action.token))
                else:
                    self._perform(action)
            self._events.popleft()

    async def commit(self, *operations: Operation) -> list[Answer]:
        """See CoreLoop."""
        return await Written(operations)

    def begin(self, job: Coroutine[Any, Any, None]) -> None:
        """Have a job done after what is being done now."""
        self._jobs.append((job, None))

    def settle(self, cut_off_at: int = 0) -> None:
        """Do everything that is left to be done.

        cut_off_at: which commit of this step does not happen any more, from 1.  Raises CutOffError there.
        """
        self.commits, self.cut_off_at = 0, cut_off_at
        while self._jobs or self._waiting:
            while self._jobs:
                self._go_on(*self._jobs.popleft())
            if self._waiting:
                self._write()

    def drop(self) -> None:
        """End every job where it stands."""
        for job, _ in self._jobs:
            job.close()
        for _, tag in self._waiting:
            if not isinstance(tag, int):
                tag.close()

    def _go_on(self, job: Job, answer: list[Answer] | Exception | None) -> None:
        try:
            if isinstance(answer, Exception):
                written = job.throw(answer)
            else:
                written = job.send(answer)  # type: ignore[arg-type] # None begins a job
        except StopIteration:
            return
        self._waiting.append((written.operations, job))

    def _write(self) -> None:
        self.commits += 1
        if self.commits == 1 and self.before_first is not None:
            self.before_first()
        if self.commits == self.cut_off_at:
            raise CutOffError
        waiting, self._waiting = self._waiting, []
        try:
            merged = [operation for operations, _ in waiting for operation in operations]
            answers = self._store.apply(merged, now=self._clock.now())
        except QueueError as error:
            self._failed(waiting, error)
            return
        at = 0
        for operations, tag in waiting:
            own = answers[at : at + len(operations)]
            at += len(operations)
            if isinstance(tag, int):
                self.post(Committed(token=tag, answers=tuple(own)))
            else:
                self.post(Observed(operations=tuple(operations), answers=tuple(own)))
                self._jobs.append((tag, own))
            for seen in self.seen:
                seen(operations, own)

    def _failed(self, waiting: list[tuple[Sequence[Operation], int | Job]], error: QueueError) -> None:
        for _, tag in waiting:
            if isinstance(tag, int):
                self.post(CommitFailed(token=tag, message=str(error)))
            else:
                self._jobs.append((tag, error))
