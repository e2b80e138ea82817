"""Contents that the coordinator shall have, brought there behind everything else, for ever.

Two kinds: what was added here and may be needed elsewhere soon (so that an offer does not wait for it), and
what is owed: a row that refers to it has left without it. What is owed is kept in the store.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence

from skerry.errors import BlobError, QueueError
from task_queue.operations import Answer, PutMeta

log = logging.getLogger(__name__)

OWED = "content.owed"
#: More names than this are not remembered; the oldest leave first.
LIMIT = 500
RETRY_FIRST_S = 1.0
RETRY_MOST_S = 60.0


class Outgoing:
    """Uploads names one after the other until each is there, or is not here any more."""

    def __init__(
        self,
        upload: Callable[[tuple[str, ...]], Awaitable[None]],
        commit: Callable[..., Awaitable[Sequence[Answer]]],
        owed: Iterable[str] = (),
    ) -> None:
        """upload: brings contents to the coordinator or raises BlobError.  owed: from an earlier process."""
        self._upload = upload
        self._commit = commit
        self._owed = dict.fromkeys(owed)
        self._names = dict(self._owed)
        self._changed = asyncio.Event()
        if self._names:
            self._changed.set()

    def soon(self, name: str) -> None:
        """Bring this content there when there is time; forgotten when the process ends."""
        if len(self._names) < LIMIT:
            self._names.setdefault(name)
            self._changed.set()

    async def owe(self, names: Iterable[str]) -> None:
        """Bring these there, whatever happens: something that refers to them has gone ahead."""
        self._owed.update(dict.fromkeys(names))
        self._names.update(self._owed)
        await self._save()
        self._changed.set()

    async def run(self) -> None:
        """Upload what there is as it comes; never returns."""
        delay_s = RETRY_FIRST_S
        while True:
            await self._changed.wait()
            self._changed.clear()
            if await self._round():
                delay_s = RETRY_FIRST_S
                continue
            await asyncio.sleep(delay_s)
            delay_s = min(delay_s * 2, RETRY_MOST_S)
            self._changed.set()

    async def _round(self) -> bool:
        """Try each once; return whether nothing is left."""
        for name in list(self._names):
            try:
                await self._upload((name,))
            except BlobError as error:
                log.info("content %s is not at the coordinator yet: %s", name, error)
                continue
            self._names.pop(name, None)
            if name in self._owed:
                del self._owed[name]
                await self._save()
        return not self._names

    async def _save(self) -> None:
        try:
            await self._commit(PutMeta(name=OWED, value=list(self._owed)[-LIMIT:]))
        except QueueError as error:  # after a restart it is uploaded once too often, or asked for in vain
            log.warning("the list of contents to bring was not written: %s", error)
