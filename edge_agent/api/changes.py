"""Telling watchers of changed tasks: bounded queues, so that a slow listener costs nobody anything."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager

from skerry.documents import TaskChanged

#: Changes kept for one listener; beyond that it is told that it missed some.
LISTENER_LIMIT = 1000


class Changes:
    """Hands every change to every listener. Belongs to one event loop."""

    def __init__(self, limit: int = LISTENER_LIMIT) -> None:
        """limit: changes kept for a listener that does not read."""
        self._limit = limit
        self._listeners: set[asyncio.Queue[TaskChanged | None]] = set()

    def publish(self, change: TaskChanged) -> None:
        """Tell all listeners; never waits."""
        for queue in self._listeners:
            if queue.qsize() < self._limit:
                queue.put_nowait(change)
            elif queue.qsize() == self._limit:
                queue.put_nowait(None)  # one gap is told once; what follows it is dropped until there is room

    @contextmanager
    def subscription(self) -> Iterator[AsyncIterator[TaskChanged | None]]:
        """Subscribe for the block. None among the changes: some were missed."""
        queue: asyncio.Queue[TaskChanged | None] = asyncio.Queue()
        self._listeners.add(queue)
        try:
            yield _each(queue)
        finally:
            self._listeners.discard(queue)


async def _each(queue: asyncio.Queue[TaskChanged | None]) -> AsyncIterator[TaskChanged | None]:
    while True:
        yield await queue.get()
