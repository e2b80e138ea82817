"""Large results of tasks that ran elsewhere: what came home by its hash is fetched until it is here.

The list of what is still missing is kept in the store, written together with the ends that named it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress

from skerry.errors import BlobError, QueueError
from task_queue.operations import Answer, Operation, PutMeta, Return

log = logging.getLogger(__name__)

WANTED = "content.wanted"
#: More names than this are not remembered over a restart; the oldest leave first.
WANTED_LIMIT = 500
RETRY_S = 5.0
RETRY_MOST_S = 300.0


class Homecoming:
    """Fetches results' contents one after the other, for ever, behind everything else."""

    def __init__(
        self,
        fetch: Callable[[str], Awaitable[None]],
        commit: Callable[..., Awaitable[Sequence[Answer]]],
        wanted: Iterable[str] = (),
    ) -> None:
        """fetch: has one content here or raises BlobError.  wanted: what an earlier process still missed."""
        self._fetch = fetch
        self._commit = commit
        self._wanted = dict.fromkeys(wanted)
        self._has_more = asyncio.Event()
        if self._wanted:
            self._has_more.set()

    def note(self, operations: Sequence[Operation]) -> list[Operation]:
        """Return what to commit together with these operations: the list with their results' contents."""
        names = [n for op in operations if isinstance(op, Return) for n in op.outcome.blobs]
        if not names:
            return []
        self._wanted.update(dict.fromkeys(names))
        self._has_more.set()
        return [self._list()]

    async def run(self) -> None:
        """Fetch what is wanted as it comes; never returns.

        What nobody has now is wanted still: a node whose way was closed brings it when it can.
        """
        delay_s = RETRY_S
        while True:
            await self._has_more.wait()
            self._has_more.clear()
            if await self._round():
                delay_s = RETRY_S
                continue
            with suppress(TimeoutError):
                await asyncio.wait_for(self._has_more.wait(), delay_s)
                delay_s = RETRY_S
            delay_s = min(delay_s * 2, RETRY_MOST_S)
            self._has_more.set()

    async def _round(self) -> bool:
        """Try each once; return whether nothing is left to be tried again."""
        for name in list(self._wanted):
            try:
                await self._fetch(name)
            except BlobError as error:
                log.info("a result's content is not here yet: %s", error)
                continue
            del self._wanted[name]
            await self._save()
        return not self._wanted

    async def _save(self) -> None:
        try:
            await self._commit(self._list())
        except QueueError as error:  # fetched twice at worst, after a restart
            log.warning("the list of contents to fetch was not written: %s", error)

    def _list(self) -> PutMeta:
        return PutMeta(name=WANTED, value=list(self._wanted)[-WANTED_LIMIT:])
