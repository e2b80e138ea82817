"""The API's testing kit: an agent facade on any store, whose tasks run when the test says so."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from aiohttp import web

from edge_agent.api.app import build_agent_app
from edge_agent.api.changes import Changes
from edge_agent.api.story import story_view
from edge_agent.queue_report import queue_details
from skerry.blobs import BlobStore
from skerry.clock import Clock
from skerry.decision import Candidate, Decision
from skerry.documents import ContentReport, LinkReport, NodeReport, PolicyStatus, QueueReport, TaskChanged
from skerry.errors import BackupError, StorageFailed
from skerry.ids import TaskId, TaskIdSource
from skerry.messages import Outcome
from skerry.metrics import Metrics
from skerry.node import Device, Inventory
from skerry.queue_documents import QueueCheck, QueueDetails, StoryView
from skerry.recurring import RecurringSpec
from skerry.task import TaskSpec
from skerry.testing import ManualClock
from skerry.web import Access, TcpListener, UnixListener
from skerry.web.testing import ServerThread
from task_queue.limits import Limits
from task_queue.memory_store import MemoryStore
from task_queue.operations import (
    Answer,
    Cancel,
    Changed,
    Claim,
    Claimed,
    DropRecurring,
    Enqueue,
    Enqueued,
    Fail,
    Finish,
    Ok,
    Operation,
    PutRecurring,
    Refused,
    Replay,
    Start,
    Started,
)
from task_queue.recurring_row import RecurringRecord
from task_queue.store import Store, TaskFilter, TaskRecord
from task_queue.task import FINAL

CPU = Device(device_id="cpu-0", device_class="cpu", name="processor", executors=("command", "onnx"), slots=2)


class StoreFacade:
    """An AgentFacade without executors: succeed() and fail() end what was submitted."""

    def __init__(self, store: Store, clock: Clock, blobs: BlobStore) -> None:
        """Serve this store; nothing is started."""
        self._store = store
        self._clock = clock
        self._ids = TaskIdSource(clock.wall_s)
        self._changes = Changes()
        self.blobs = blobs
        self.added: list[str] = []  #: contents that were stored over the interface
        self.reasons: tuple[str, ...] = ()  #: against readiness
        self.breaks: Exception | None = None  #: raised instead of the next commits
        self.check = QueueCheck(is_whole=True)
        self.policy = PolicyStatus(policy="", version="", state="off", fallback="none")

    def content_added(self, name: str) -> None:
        """See AgentFacade."""
        self.added.append(name)

    async def submit(self, task: TaskSpec) -> Enqueued | Refused:
        """Accept a task in one commit."""
        answer = self._apply(Enqueue(task_id=self._ids.next(), task=task, wall_s=self._clock.wall_s()))
        assert isinstance(answer, Enqueued | Refused)
        if isinstance(answer, Enqueued) and answer.is_new:
            self._publish(answer.task_id)
        return answer

    async def get(self, task_id: TaskId) -> TaskRecord | None:
        """Read one task."""
        return self._store.get(task_id)

    async def wait(self, task_id: TaskId, timeout_s: float) -> TaskRecord | None:
        """Wait for the end of a task, told by the changes."""
        with self._changes.subscription() as changes:
            try:
                async with asyncio.timeout(timeout_s):
                    while (record := self._store.get(task_id)) is not None and record.state not in FINAL:
                        await anext(changes)
            except TimeoutError:
                return self._store.get(task_id)
            return record

    async def list(self, task_filter: TaskFilter) -> Sequence[TaskRecord]:
        """Read some tasks."""
        return self._store.find(task_filter)

    async def cancel(self, task_id: TaskId, reason: str = "") -> Changed | Refused:
        """End a task."""
        return self._change(Cancel(task_id=task_id, reason=reason))

    async def replay(self, task_id: TaskId) -> Changed | Refused:
        """Make a dead task ready again."""
        return self._change(Replay(task_id=task_id))

    async def submit_many(self, tasks: Sequence[TaskSpec]) -> Sequence[Enqueued | Refused]:
        """Accept tasks in one commit."""
        wall_s = self._clock.wall_s()
        operations = [Enqueue(task_id=self._ids.next(), task=task, wall_s=wall_s) for task in tasks]
        answers = [each for each in self._apply_all(*operations) if isinstance(each, Enqueued | Refused)]
        for answer in answers:
            if isinstance(answer, Enqueued) and answer.is_new:
                self._publish(answer.task_id)
        return answers

    async def replay_many(self, task_ids: Sequence[TaskId]) -> Sequence[Changed | Refused]:
        """Make dead tasks ready again in one commit."""
        answers = self._apply_all(*(Replay(task_id=task_id) for task_id in task_ids))
        return [answer for answer in answers if isinstance(answer, Changed | Refused)]

    async def story(self, task_id: TaskId) -> StoryView | None:
        """Say what happened to a task."""
        record = self._store.get(task_id)
        return None if record is None else story_view(record, self._store.story(task_id))

    async def recurring(self) -> Sequence[RecurringRecord]:
        """Read the recurring tasks."""
        return self._store.recurring(now=self._clock.now())

    async def put_recurring(self, spec: RecurringSpec) -> Ok | Refused:
        """Keep a recurring task."""
        answer = self._apply(PutRecurring(recurring_id=self._ids.next(), spec=spec))
        assert isinstance(answer, Ok | Refused)
        return answer

    async def drop_recurring(self, name: str) -> Ok | Refused:
        """Forget a recurring task."""
        answer = self._apply(DropRecurring(name=name))
        assert isinstance(answer, Ok | Refused)
        return answer

    async def queue_details(self) -> QueueDetails:
        """Tell everything of the queue in memory."""
        now, wall_s = self._clock.now(), self._clock.wall_s()
        return queue_details(self._store, path=Path("memory"), limits=Limits(), now=now, wall_s=wall_s)

    async def check_queue(self) -> QueueCheck:
        """Say what the test wants said: memory has no file to check."""
        return self.check

    async def make_backup(self) -> Path:
        """Refuse: memory cannot be copied as a file."""
        raise BackupError("a queue in memory has no file to copy")

    def watch(self) -> AbstractContextManager[AsyncIterator[TaskChanged | None]]:
        """Subscribe to changes."""
        return self._changes.subscription()

    async def report(self) -> NodeReport:
        """Describe a node with one processor."""
        depth = self._store.depth()
        return NodeReport(
            node="edge-1",
            fleet="test",
            region="north",
            version="0",
            inventory=Inventory(devices=(CPU,), cpu_millicores=2000, memory_bytes=1 << 30),
            link=LinkReport(state="off", reason="no broker in this test"),
            queue=QueueReport(
                by_state={state.value: count for state, count in depth.by_state.items()},
                outbox={lane.value: count for lane, count in depth.outbox.items()},
                bytes_used=depth.bytes_used,
            ),
            content=ContentReport(bytes_used=self.blobs.used_bytes, bytes_limit=self.blobs.quota_bytes),
            scheduler="by hand",
        )

    def policy_status(self) -> PolicyStatus:
        """See AgentFacade: what the test has put there."""
        return self.policy

    def not_ready_because(self) -> Sequence[str]:
        """Return the reasons that the test gave."""
        return self.reasons

    # --- for tests ------------------------------------------------------------------------------------------

    def succeed(self, task_id: str, result: object = None) -> None:
        """Run this task to success."""
        started = self._begin(task_id)
        outcome = Outcome(
            status="succeeded",
            result=result,
            node="edge-1",
            device="cpu-0",
            device_class="cpu",
            runtime_s=0.25,
        )
        self._apply(Finish(task_id=started.task_id, fence=started.fence, outcome=outcome))
        self._publish(started.task_id)

    def fail(self, task_id: str, error: str) -> None:
        """Run this task to a failure for good."""
        started = self._begin(task_id)
        outcome = Outcome(status="failed", error=error, node="edge-1", device="cpu-0")
        self._apply(Fail(task_id=started.task_id, fence=started.fence, outcome=outcome, may_retry=False))
        self._publish(started.task_id)

    def _begin(self, task_id: str) -> Started:
        claimed = self._apply(Claim(limit=256))
        assert isinstance(claimed, Claimed)
        decision = Decision(
            task_id=task_id,
            decided_by="rule:by-hand",
            node="edge-1",
            device="cpu-0",
            reason="the test said so",
            candidates=(Candidate(node="edge-1", device="cpu-0", score=100.0),),
        )
        started = self._apply(Start(task_id=TaskId(task_id), device="cpu-0", decision=decision))
        assert isinstance(started, Started), started
        return started

    def _change(self, operation: Cancel | Replay) -> Changed | Refused:
        answer = self._apply(operation)
        assert isinstance(answer, Changed | Refused)
        if isinstance(answer, Changed):
            self._publish(answer.task_id)
        return answer

    def _apply(self, operation: Operation) -> Answer:
        return self._apply_all(operation)[0]

    def _apply_all(self, *operations: Operation) -> Sequence[Answer]:
        if self.breaks is not None:
            raise self.breaks
        return self._store.apply(operations, now=self._clock.now())

    def _publish(self, task_id: TaskId) -> None:
        record = self._store.get(task_id)
        assert record is not None
        self._changes.publish(TaskChanged(task_id=task_id, state=record.state.value))


@contextmanager
def serving(
    home: Path, *, token: str, limits: Limits | None = None
) -> Iterator[tuple[StoreFacade, ServerThread]]:
    """Serve the API over a queue in memory, on home/agent.sock and a free TCP port, for the block."""
    clock = ManualClock()
    store = MemoryStore(now=clock.now(), wall_s=clock.wall_s, limits=limits)
    facade = StoreFacade(store, clock, BlobStore(home / "blobs", 8 << 20, clock=clock))

    def build() -> web.Application:
        access, metrics = Access(tokens=(token,)), Metrics("skerry_agent")
        return build_agent_app(facade, version="1", access=access, metrics=metrics)

    with ServerThread(build, [UnixListener(path=home / "agent.sock"), TcpListener()]) as thread:
        yield facade, thread


def a_full_disk() -> StorageFailed:
    """Return what a store raises when the disk refuses; its path must not reach a client."""
    return StorageFailed("database or disk is full: /secret/path/queue.db")
