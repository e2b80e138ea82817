"""The core's shell: events in, actions out, commits in their order, ticks in time. Owns no decision.

Every commit of the agent goes through here, whoever asks for it, so that the core sees all of them in the
order in which the store performed them.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from edge_agent.core.actions import Action, Commit
from edge_agent.core.core import AgentCore
from edge_agent.core.events import CommitFailed, Committed, Event, Observed, Ticked
from edge_agent.flight import Recorder
from skerry.clock import Clock
from skerry.errors import QueueError, SkerryError, StorageFailed
from task_queue.mailbox import Letter, Mailbox, settle
from task_queue.operations import Answer, Operation, Refused
from task_queue.writer import StoreWriter

log = logging.getLogger(__name__)

#: A timer of the event loop stands still while the machine is suspended: it is looked at again after this.
LONGEST_SLEEP_S = 10.0
Perform = Callable[[Action], None]
Seen = Callable[[Sequence[Operation], Sequence[Answer]], None]


class Waiter(NamedTuple):
    """Another part of the agent that waits for its commit. One that stops waiting does not take it back."""

    answer: asyncio.Future[list[Answer]]


#: Who a commit is for: the core, by its token, or another part.
Tag = int | Waiter
_Observed = list[tuple[Waiter, Letter["Tag"]]]


class CoreLoop:
    """Runs one core on one event loop. `failed` is set when the core itself breaks: the process must end."""

    def __init__(
        self, core: AgentCore, writer: StoreWriter, clock: Clock, *, recorder: Recorder | None = None
    ) -> None:
        """Call it on the running event loop; set `perform` before the first event."""
        self.core = core
        self._handle = core.handle if recorder is None else partial(recorder.handle, core)
        self.perform: Perform = lambda action: None
        self.seen: list[Seen] = []  #: called with every commit, after the core
        self._writer = writer
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self.failed: asyncio.Future[None] = self._loop.create_future()
        self._mailbox: Mailbox[Tag] = Mailbox(self._settled)
        self._timer: asyncio.TimerHandle | None = None
        self._events: deque[Event] = deque()

    def post(self, event: Event) -> None:
        """Give the core an event that happened now, and do what it asks for."""
        if self.failed.done():
            return
        self._events.append(event)
        if len(self._events) > 1:
            return  # an action has led to it: it is taken when the present one is done
        try:
            while self._events:
                for action in self._handle(self._events[0], self._clock.now()):
                    self._do(action)
                self._events.popleft()
            self._set_timer()
        except Exception as error:
            # A broken core must not go on: what is on disk is whole, and a new process starts from there.
            story = [f"{at:.3f} {what} {who}" for at, what, who in list(self.core.state.story)[-30:]]
            log.critical("the agent's core failed", exc_info=error, extra={"story": story})
            self.failed.set_exception(error)

    async def commit(self, *operations: Operation) -> list[Answer]:
        """Commit operations of another part of the agent; the core hears of them first.

        Raises StorageFailed when the disk refuses, QueueError while the agent is closing.
        """
        waiter = Waiter(self._loop.create_future())
        self._submit(operations, waiter)
        return await waiter.answer

    def stop(self) -> None:
        """End the ticks."""
        if self._timer is not None:
            self._timer.cancel()
        if not self.failed.done():
            self.failed.cancel()

    def _do(self, action: Action) -> None:
        if not isinstance(action, Commit):
            self.perform(action)
            return
        self._submit(action.operations, action.token)

    def _submit(self, operations: Sequence[Operation], tag: Tag) -> None:
        try:
            self._writer.hand_over(operations, self._mailbox, tag)
        except QueueError as error:
            self._mailbox.post([Letter(tag, operations, None, error)])

    def _settled(self, letters: list[Letter[Tag]]) -> None:
        """Take what became of the commits of one sync, in their order."""
        observed: _Observed = []
        for letter in letters:
            if isinstance(letter.tag, int):
                self._observe(observed)
                observed = []
                self._committed(letter.tag, letter)
            else:
                observed.append((letter.tag, letter))
        self._observe(observed)

    def _committed(self, token: int, letter: Letter[Tag]) -> None:
        try:
            answers = _answers(letter)
        except StorageFailed as error:
            self.post(CommitFailed(token=token, message=str(error)))
            return
        self.post(Committed(token=token, answers=tuple(answers)))
        self._tell(letter.operations, answers)

    def _observe(self, observed: _Observed) -> None:
        """Let the core see what other parts have committed, all at once, then answer each of them."""
        kept = [(letter.operations, letter.answers) for _, letter in observed if letter.answers is not None]
        if kept:
            operations = tuple(operation for some, _ in kept for operation in some)
            self.post(Observed(operations=operations, answers=tuple(a for _, some in kept for a in some)))
        for waiter, letter in observed:
            settle(waiter.answer, letter)
            if letter.answers is not None:
                self._tell(letter.operations, letter.answers)

    def _tell(self, operations: Sequence[Operation], answers: Sequence[Answer]) -> None:
        for seen in self.seen:
            try:
                seen(operations, answers)
            except Exception as error:  # whoever else waits for this sync is answered all the same
                self._loop.call_exception_handler(
                    {"message": "what a commit was told to broke", "exception": error}
                )

    def _set_timer(self) -> None:
        delay_s = min(self.core.next_due_in_s(self._clock.now()), LONGEST_SLEEP_S)
        # A little late rather than a little early: a tick before its time would only be repeated.
        at = self._loop.time() + delay_s + 0.001
        if self._timer is not None:
            if self._timer.when() <= at:
                return  # it comes early enough, and is set again then
            self._timer.cancel()
        self._timer = self._loop.call_at(at, self._tick)

    def _tick(self) -> None:
        self._timer = None
        self.post(Ticked())


def _answers(letter: Letter[Tag]) -> list[Answer]:
    """Return a commit's answers. What the store finds impossible is refused: repeating it is of no use."""
    error = letter.error
    if letter.answers is not None:
        return letter.answers
    if isinstance(error, StorageFailed) or not isinstance(error, SkerryError):
        raise StorageFailed(str(error)) from error
    log.error("the store found a commit impossible: %s", error)
    return [
        Refused(reason="not_allowed", message=str(error), task_id=getattr(operation, "task_id", None))
        for operation in letter.operations
    ]
