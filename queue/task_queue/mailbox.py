"""How the answers of a commit come back to an event loop: all that are for it in one hop.

A hop costs a write to the loop's own pipe and a switch of threads; one for each answer would cost more than
the commit. Knows nothing of stores.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Generic, NamedTuple, TypeVar

from task_queue.operations import Answer, Operation

_Tag = TypeVar("_Tag")


class Letter(NamedTuple, Generic[_Tag]):
    """What became of one submission. tag: the submitter's own word for it.

    answers: one for each operation, None when none of them took effect: then `error` says why.
    """

    tag: _Tag
    operations: Sequence[Operation]
    answers: list[Answer] | None
    error: BaseException | None = None


class Mailbox(Generic[_Tag]):
    """One submitter's door on its event loop. Letters of one commit come together, in the order submitted."""

    def __init__(self, deliver: Callable[[list[Letter[_Tag]]], None]) -> None:
        """Belong to the running loop. deliver: called there with the letters of each commit."""
        self.loop = asyncio.get_running_loop()
        self._deliver = deliver
        self._is_due = False

    def post(self, letters: list[Letter[_Tag]]) -> None:
        """Have the letters delivered; from any thread. A loop that is closed hears no more of them."""
        if not self.loop.is_closed():
            with suppress(RuntimeError):  # it was closed just now
                self.loop.call_soon_threadsafe(self._deliver, letters)

    def soon(self, act: Callable[[], None]) -> None:
        """Do it once when everything that is ready on the loop has run, however often asked until then."""
        if not self._is_due:
            self._is_due = True
            self.loop.call_soon(self._act, act)

    def _act(self, act: Callable[[], None]) -> None:
        self._is_due = False
        act()


def settle(waiting: asyncio.Future[list[Answer]], letter: Letter[_Tag]) -> None:
    """Give whoever waits what the letter says; one that was cancelled meanwhile hears nothing."""
    if waiting.done():
        return
    if letter.answers is None:
        assert letter.error is not None  # one of the two is there
        waiting.set_exception(letter.error)
    else:
        waiting.set_result(letter.answers)
