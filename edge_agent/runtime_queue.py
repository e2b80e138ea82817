"""What people ask of the agent's queue: many tasks at once, recurring ones, depth, checks, copies."""

from __future__ import annotations

import asyncio
import secrets
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from edge_agent.api.story import story_view
from edge_agent.queue_report import LAST_CHECK, queue_details
from edge_agent.runtime_build import queue_limits
from edge_agent.runtime_door import refuse_at_the_door
from skerry.ids import TaskId, TaskIdSource
from skerry.queue_documents import QueueCheck, QueueDetails, StoryView
from skerry.recurring import RecurringSpec
from skerry.task import TaskSpec
from task_queue.operations import (
    Changed,
    DropRecurring,
    Enqueue,
    Enqueued,
    Ok,
    PutMeta,
    PutRecurring,
    Refused,
    Replay,
)
from task_queue.recurring_row import RecurringRecord
from task_queue.sqlite_store import SqliteStore
from task_queue.store import Store

if TYPE_CHECKING:
    from edge_agent.core.state import State as CoreState
    from edge_agent.runtime_build import Parts
    from edge_agent.runtime_loop import CoreLoop


#: Tasks of a batch that are looked at before the event loop gets its turn.
TASKS_A_TURN = 32


class QueueQuestions(ABC):
    """The part of AgentFacade that is about the queue; the agent brings parts, loop and ids."""

    parts: Parts
    loop: CoreLoop
    _ids: TaskIdSource

    @abstractmethod
    def _publish(self, task_id: TaskId, state: str) -> None: ...

    @cached_property
    def _backups(self) -> asyncio.Lock:
        return asyncio.Lock()

    @property
    def _core(self) -> CoreState:
        return self.loop.core.state

    async def submit_many(self, tasks: Sequence[TaskSpec]) -> Sequence[Enqueued | Refused]:
        """See AgentFacade. What can never run is refused at the door, the rest is one commit."""
        answers: dict[int, Enqueued | Refused] = {}
        taken: list[tuple[int, Enqueue]] = []
        for number, task in enumerate(tasks):
            if number % TASKS_A_TURN == TASKS_A_TURN - 1:
                await asyncio.sleep(0)  # a batch must not keep other requests, and ends of tasks, waiting
            refused = refuse_at_the_door(self.parts, self._core, task)
            if refused is None:
                wall_s = self.parts.clock.wall_s()
                taken.append((number, Enqueue(task_id=self._ids.next(), task=task, wall_s=wall_s)))
            else:
                answers[number] = refused
        given = await self.loop.commit(*(operation for _, operation in taken)) if taken else []
        for (number, operation), answer in zip(taken, given, strict=True):
            assert isinstance(answer, Enqueued | Refused)
            answers[number] = answer
            if isinstance(answer, Enqueued) and answer.is_new:
                self._publish(answer.task_id, "delayed" if operation.task.delay_s else "ready")
        pauses = [answer.pause_s for answer in answers.values() if isinstance(answer, Enqueued)]
        if any(pauses):  # room is short: one wait for the batch, as long as the longest of its tasks'
            await asyncio.sleep(max(pauses))
        return [answers[number] for number in range(len(tasks))]

    async def replay_many(self, task_ids: Sequence[TaskId]) -> Sequence[Changed | Refused]:
        """See AgentFacade."""
        answers = await self.loop.commit(*(Replay(task_id=task_id) for task_id in task_ids))
        return [answer for answer in answers if isinstance(answer, Changed | Refused)]

    async def story(self, task_id: TaskId) -> StoryView | None:
        """See AgentFacade."""

        def ask(store: Store) -> StoryView | None:
            record = store.get(task_id)
            return None if record is None else story_view(record, store.story(task_id))

        return await asyncio.wrap_future(self.parts.writer.read(ask))

    async def recurring(self) -> Sequence[RecurringRecord]:
        """See AgentFacade."""
        now = self.parts.clock.now()
        return await asyncio.wrap_future(self.parts.writer.read(lambda store: store.recurring(now=now)))

    async def put_recurring(self, spec: RecurringSpec) -> Ok | Refused:
        """See AgentFacade. What can never run here is refused now rather than at each of its times."""
        refused = refuse_at_the_door(self.parts, self._core, spec.task)
        if refused is not None:
            return refused
        (answer,) = await self.loop.commit(PutRecurring(recurring_id=self._ids.next(), spec=spec))
        assert isinstance(answer, Ok | Refused)
        return answer

    async def drop_recurring(self, name: str) -> Ok | Refused:
        """See AgentFacade."""
        (answer,) = await self.loop.commit(DropRecurring(name=name))
        assert isinstance(answer, Ok | Refused)
        return answer

    @property
    def _database(self) -> Path:
        return self.parts.settings.home / "queue.db"

    async def queue_details(self) -> QueueDetails:
        """See AgentFacade."""
        parts, path = self.parts, self._database
        limits = queue_limits(parts.settings)
        now, wall_s = parts.clock.now(), parts.clock.wall_s()
        return await asyncio.wrap_future(
            parts.writer.read(
                lambda store: queue_details(store, path=path, limits=limits, now=now, wall_s=wall_s)
            )
        )

    async def check_queue(self) -> QueueCheck:
        """See AgentFacade. What was found is kept for the next look."""
        from task_queue.inspection import check_in_use

        began = time.monotonic()
        checked = await asyncio.to_thread(check_in_use, self._database)
        if checked.damage is not None and isinstance(self.parts.store, SqliteStore):
            self.parts.store.suspect(checked.damage)
        found = QueueCheck(
            is_whole=not checked.findings,
            findings=checked.findings,
            rows=checked.rows,
            took_s=round(time.monotonic() - began, 3),
            at_wall_s=self.parts.clock.wall_s(),
        )
        await self.loop.commit(PutMeta(name=LAST_CHECK, value=msgspec.to_builtins(found)))
        return found

    async def make_backup(self) -> Path:
        """See AgentFacade."""
        from edge_agent.backup import make_archive

        parts, home = self.parts, self.parts.settings.home
        names = parts.blobs.names()
        contents = [(name, parts.blobs.size(name)) for name in names if parts.blobs.has(name)]
        node, wall_s = parts.facts.node, parts.clock.wall_s()
        archive = home / f".backup-{secrets.token_hex(8)}.zip"
        keep_free_bytes = parts.settings.queue.min_free_bytes
        async with self._backups:  # one after the other: each takes the room of two copies
            await asyncio.to_thread(
                make_archive,
                self._database,
                archive,
                node=node,
                wall_s=wall_s,
                contents=contents,
                keep_free_bytes=keep_free_bytes,
            )
        return archive
