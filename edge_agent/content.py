"""The content cache: what a task needs is here, verified and kept, before it starts; what it left goes up.

Owns fetching, uploading and making room over the content store; knows nothing of queues.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, ExitStack
from pathlib import Path
from random import Random
from typing import Protocol

from edge_agent.core.actions import FetchContent
from edge_agent.core.events import ContentMissing, ContentReady, Event
from skerry.blobs import BlobStore
from skerry.clock import Clock, Instant
from skerry.errors import BlobCorrupt, BlobError, BlobNotFound, CoordinatorUnreachable
from skerry.ids import TaskId

log = logging.getLogger(__name__)

#: Transfers at once: more share the same line.
TRANSFERS = 4
RETRY_FIRST_S = 0.5
RETRY_MOST_S = 10.0
#: The coordinator keeps for much longer than this what it was asked about.
TRUST_S = 60.0


class Remote(Protocol):
    """The coordinator's content store: every answer is content, `nobody has it`, or `try again later`."""

    def get(self, name: str, offset: int) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """Open content from an offset on.  Raises BlobNotFound, CoordinatorUnreachable."""
        ...

    async def has(self, name: str) -> bool:
        """Ask whether it is there.  Raises CoordinatorUnreachable."""
        ...

    async def put(self, name: str, path: Path) -> None:
        """Send a verified file.  Raises CoordinatorUnreachable."""
        ...

    async def close(self) -> None:
        """Close kept connections."""
        ...


class ContentCache:
    """Fetches each content once however many tasks wait for it, and holds it while they do."""

    def __init__(
        self,
        blobs: BlobStore,
        remote: Remote | None,
        *,
        clock: Clock,
        referenced: Callable[[], Awaitable[frozenset[str]]],
        keep_s: float,
        rng: Random,
    ) -> None:
        """remote: None on a node that is not enrolled.  referenced: names that unfinished tasks need."""
        self.blobs = blobs
        self._remote = remote
        self._clock = clock
        self._referenced = referenced
        self._keep_s = keep_s
        self._rng = rng
        self._holds: dict[TaskId, ExitStack] = {}
        self._fetches: dict[str, asyncio.Task[None]] = {}
        self._jobs: set[asyncio.Task[None]] = set()
        self._transfers = asyncio.Semaphore(TRANSFERS)
        self._uploaded: dict[str, Instant] = {}

    def fetch(self, action: FetchContent, post: Callable[[Event], None]) -> None:
        """Have a task's contents here; ContentReady or ContentMissing is posted in time."""
        job = asyncio.create_task(self._fetch(action, post))
        self._jobs.add(job)
        job.add_done_callback(self._jobs.discard)

    def let_go(self, task_id: TaskId) -> None:
        """A task no longer needs its contents kept."""
        hold = self._holds.pop(task_id, None)
        if hold is not None:
            hold.close()

    async def make_room(self, size_bytes: int) -> None:
        """Remove what nobody needs until this much more fits; less is freed when everything is needed."""
        if self.blobs.used_bytes + size_bytes <= self.blobs.quota_bytes:
            return
        referenced = await self._referenced()
        await asyncio.to_thread(
            self.blobs.collect, referenced, grace_s=self._keep_s, now=self._clock.now(), room_bytes=size_bytes
        )

    async def upload(self, names: tuple[str, ...]) -> None:
        """Have these contents at the coordinator, as far as they are here.  Raises CoordinatorUnreachable."""
        for name in names:
            if self._remote is None or self._is_surely_there(name) or not self.blobs.has(name):
                continue
            async with self._transfers:
                with self.blobs.holding(name):
                    if not await self._remote.has(name):
                        path = await asyncio.to_thread(self.blobs.path, name)
                        await self._remote.put(name, path)
            if len(self._uploaded) > 10_000:
                self._uploaded.clear()
            self._uploaded[name] = self._clock.now()

    def _is_surely_there(self, name: str) -> bool:
        """Whether it was seen there so lately that the coordinator cannot have needed its room since."""
        seen = self._uploaded.get(name)
        now = self._clock.now()
        return seen is not None and seen.boot_id == now.boot_id and now.since(seen) < TRUST_S

    async def close(self) -> None:
        """End all transfers."""
        tasks = [*self._jobs, *self._fetches.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for task_id in list(self._holds):
            self.let_go(task_id)
        if self._remote is not None:
            await self._remote.close()

    async def _fetch(self, action: FetchContent, post: Callable[[Event], None]) -> None:
        hold = self._holds.setdefault(action.task_id, ExitStack())
        hold.enter_context(self.blobs.holding(*action.hashes))
        try:
            async with asyncio.timeout(action.within_s):
                for name in action.hashes:
                    await self.have(name)
        except (BlobError, TimeoutError) as error:
            self.let_go(action.task_id)
            missing = isinstance(error, BlobNotFound)
            message = str(error) or "its content did not come in time"
            post(ContentMissing(task_id=action.task_id, message=message, is_permanent=missing))
        else:
            post(ContentReady(task_id=action.task_id))

    async def have(self, name: str) -> None:
        """Have one content here, verified.  Raises BlobNotFound when nobody has it, or a BlobError."""
        try:
            await asyncio.to_thread(self.blobs.path, name)
            return
        except (BlobNotFound, BlobCorrupt) as error:
            if self._remote is None:
                raise BlobNotFound(
                    f"content {name} is not on this node, and there is no coordinator to fetch it from: "
                    "add it with `skerry models add`, then replay the task"
                ) from error
        fetch = self._fetches.get(name)
        if fetch is None:
            fetch = self._fetches[name] = asyncio.create_task(self._download(name, self._remote))
            fetch.add_done_callback(lambda done: self._fetched(name, done))
        await asyncio.shield(fetch)

    def _fetched(self, name: str, done: asyncio.Task[None]) -> None:
        self._fetches.pop(name, None)
        if not done.cancelled():
            done.exception()  # looked at, though everyone who waited for it may have given up

    async def _download(self, name: str, remote: Remote) -> None:
        """Receive content whole, going on where a broken connection left off."""
        delay_s, last = RETRY_FIRST_S, -1
        await self.make_room(0)
        with await asyncio.to_thread(self.blobs.receive, name) as sink:
            received = 0
            while True:
                try:
                    async with self._transfers, remote.get(name, received) as chunks:
                        async for chunk in chunks:
                            await self.make_room(len(chunk))
                            await asyncio.to_thread(sink.write, chunk)
                            received += len(chunk)
                    break
                except CoordinatorUnreachable as error:
                    if received == last:  # no progress since the last break: the core asks again later
                        raise
                    log.info("%s at byte %d of %s: going on from there", error, received, name)
                    last = received
                    await asyncio.sleep(self._rng.uniform(0, delay_s))
                    delay_s = min(delay_s * 2, RETRY_MOST_S)
            await asyncio.to_thread(sink.commit)
