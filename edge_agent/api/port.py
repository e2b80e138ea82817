"""What the HTTP API asks of the agent. All of it is called on the agent's event loop."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

from skerry.blobs import BlobStore
from skerry.documents import NodeReport, PolicyStatus, TaskChanged
from skerry.ids import TaskId
from skerry.queue_documents import QueueCheck, QueueDetails, StoryView
from skerry.recurring import RecurringSpec
from skerry.task import TaskSpec
from task_queue.operations import Changed, Enqueued, Ok, Refused
from task_queue.recurring_row import RecurringRecord
from task_queue.store import TaskFilter, TaskRecord


class AgentFacade(Protocol):
    """The agent as its API sees it. Refusals are values; a failing disk raises StorageFailed."""

    @property
    def blobs(self) -> BlobStore:
        """The node's content store."""
        ...

    def content_added(self, name: str) -> None:
        """Take note of content that was stored just now: other nodes may need it soon."""
        ...

    async def submit(self, task: TaskSpec) -> Enqueued | Refused:
        """Accept a task; returns only after the synced commit."""
        ...

    async def get(self, task_id: TaskId) -> TaskRecord | None:
        """Return one task with its attempts, None when there is none."""
        ...

    async def wait(self, task_id: TaskId, timeout_s: float) -> TaskRecord | None:
        """Return the task once it has ended, or as it is after timeout_s; None when there is none."""
        ...

    async def list(self, task_filter: TaskFilter) -> Sequence[TaskRecord]:
        """Return tasks, newest first, without their attempts."""
        ...

    async def cancel(self, task_id: TaskId, reason: str = "") -> Changed | Refused:
        """End a task at its submitter's wish; a running one's process is stopped. reason: for its story."""
        ...

    async def replay(self, task_id: TaskId) -> Changed | Refused:
        """Make a dead-lettered task ready again."""
        ...

    async def submit_many(self, tasks: Sequence[TaskSpec]) -> Sequence[Enqueued | Refused]:
        """Accept tasks in one commit; one answer per task, in order."""
        ...

    async def replay_many(self, task_ids: Sequence[TaskId]) -> Sequence[Changed | Refused]:
        """Make dead-lettered tasks ready again in one commit; one answer per id, in order."""
        ...

    async def story(self, task_id: TaskId) -> StoryView | None:
        """Return what happened to a task, None when there is none."""
        ...

    async def recurring(self) -> Sequence[RecurringRecord]:
        """Return the recurring tasks, by name."""
        ...

    async def put_recurring(self, spec: RecurringSpec) -> Ok | Refused:
        """Keep a recurring task; returns only after the synced commit."""
        ...

    async def drop_recurring(self, name: str) -> Ok | Refused:
        """Forget a recurring task."""
        ...

    async def queue_details(self) -> QueueDetails:
        """Return everything that is told of the queue."""
        ...

    async def check_queue(self) -> QueueCheck:
        """Check the queue's database from end to end, beside the work on it."""
        ...

    async def make_backup(self) -> Path:
        """Make a backup and return its archive, which the caller removes."""
        ...

    def watch(self) -> AbstractContextManager[AsyncIterator[TaskChanged | None]]:
        """Subscribe to changes of state from now on; the block's end ends the subscription.

        None among them: the listener was too slow and missed some. The iterator never ends by itself.
        """
        ...

    async def report(self) -> NodeReport:
        """Return what the node has, does and knows of its link now."""
        ...

    def policy_status(self) -> PolicyStatus:
        """Return how the learned policy stands here."""
        ...

    def not_ready_because(self) -> Sequence[str]:
        """Return the reasons why work would not be taken or done now; none when ready."""
        ...
