"""The door for replies: many that come at once share one commit. Owns the queue, decides nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from federation.values import Refused, Reply

Receive = Callable[[Sequence[Reply]], Awaitable[list[Refused | None]]]
#: Replies in one commit; a larger crowd takes turns.
_BATCH = 500


class ReplyDoor:
    """Collects replies while a commit runs; the next commit takes them all."""

    def __init__(self, receive: Receive) -> None:
        """receive: stores a batch durably and says what became of each."""
        self._receive = receive
        self._waiting: list[tuple[Reply, asyncio.Future[Refused | None]]] = []
        self._task: asyncio.Task[None] | None = None

    async def put(self, replies: Sequence[Reply]) -> list[Refused | None]:
        """Return what became of each once it is on disk."""
        loop = asyncio.get_running_loop()
        futures = [loop.create_future() for _ in replies]
        self._waiting.extend(zip(replies, futures, strict=True))
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._drain())
        return list(await asyncio.gather(*futures))

    async def close(self) -> None:
        """Wait until everything taken is on disk."""
        if self._task is not None:
            await asyncio.wait({self._task})

    async def _drain(self) -> None:
        while self._waiting:
            batch, self._waiting = self._waiting[:_BATCH], self._waiting[_BATCH:]
            try:
                outcomes = await self._receive([reply for reply, _ in batch])
            except Exception as error:  # the senders keep their replies and must learn why
                for _, future in batch:
                    if not future.done():
                        future.set_exception(error)
                continue
            for (_, future), outcome in zip(batch, outcomes, strict=True):
                if not future.done():
                    future.set_result(outcome)
