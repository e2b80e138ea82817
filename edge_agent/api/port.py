"""What the HTTP API asks of the agent. All of it is called on the agent's event loop."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from skerry.blobs import BlobStore
from skerry.documents import NodeReport, PolicyStatus, TaskChanged
from skerry.ids import TaskId
from skerry.task import TaskSpec
from task_queue.operations import Changed, Enqueued, Refused
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

    async def cancel(self, task_id: TaskId) -> Changed | Refused:
        """End a task at its submitter's wish; a running one's process is stopped."""
        ...

    async def replay(self, task_id: TaskId) -> Changed | Refused:
        """Make a dead-lettered task ready again."""
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
