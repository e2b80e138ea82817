"""Skerry's own store, driven as the agent's writer drives it. One commit for what is handed over together.

A batch of cycles goes the way of a busy agent: what has ended, what starts and what is claimed next share a
commit. Each task is claimed, started with its decision, and finished with its report, as always.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from pathlib import Path
from random import Random

from benchmarks.harness import BenchmarkError
from skerry.clock import SystemClock
from skerry.decision import Decision
from skerry.ids import TaskId, TaskIdSource
from skerry.messages import Outcome
from skerry.task import CommandSpec, TaskSpec
from task_queue.limits import Limits
from task_queue.operations import (
    Advance,
    Claim,
    Claimed,
    Enqueue,
    Enqueued,
    Finish,
    Operation,
    Start,
    Started,
    TrimOutbox,
)
from task_queue.sqlite_store import SqliteStore

#: Room for the largest backlog. Few ended tasks are kept, so that forgetting them is part of a task's life.
LIMITS = Limits(max_bytes=1 << 36, keep_ended=100)
#: Reports that one acknowledgement of the coordinator covers.
_ACKNOWLEDGED = 200
_DONE = Outcome(status="succeeded", runtime_s=0.1)


class SkerryQueue:
    """See Queue."""

    def __init__(self, directory: Path, durable: bool) -> None:
        """Open the store in `directory`, with synchronous FULL."""
        self._clock = SystemClock()
        self.store = SqliteStore.open(
            directory / "queue.db", now=self._clock.now(), wall_s=self._clock.wall_s, limits=LIMITS
        )
        self._ids = TaskIdSource(self._clock.wall_s, random_bits=Random().getrandbits)  # as the agent does
        self._started: list[Started] = []
        self._claimed: list[TaskId] = []
        self._ended = 0  #: since the coordinator last acknowledged reports

    def put(self, bodies: Sequence[bytes]) -> None:
        """See Queue."""
        now = time.time()
        operations = [Enqueue(task_id=self._ids.next(), task=task_of(body), wall_s=now) for body in bodies]
        for answer in self._apply(operations):
            if not isinstance(answer, Enqueued):
                raise BenchmarkError(f"the store refused a put: {answer}")

    def cycle(self, count: int) -> int:
        """See Queue. One by one each step is a commit of its own; more go as in a busy agent."""
        if count == 1:
            return self._alone()
        self._together(count)
        while len(self._started) < count and self._claimed:
            self._together(count)
        return len(self._started)

    def settle(self) -> None:
        """Finish what the batches still hold."""
        while self._started or self._claimed:
            self._together(0)

    def _alone(self) -> int:
        (claimed,) = self._apply([Claim(limit=1)])
        assert isinstance(claimed, Claimed)
        for task in claimed.tasks:
            (started,) = self._apply([_start(task.task_id)])
            assert isinstance(started, Started)
            self._apply([Finish(task_id=started.task_id, fence=started.fence, outcome=_DONE)])
        return len(claimed.tasks)

    def live(self, count: int) -> int:
        """As cycle(), while the coordinator acknowledges the reports and the oldest ended tasks go.

        In a busy agent that shares commits with what else is under way: here with every fourth.
        """
        while True:
            self._together(count, *self._forgetting())
            self._ended += len(self._started)
            if len(self._started) >= count or not self._claimed:
                return len(self._started)

    def _forgetting(self) -> list[Operation]:
        if self._ended < _ACKNOWLEDGED:
            return []
        self._ended = 0
        trims = [TrimOutbox(lane=lane, upto=upto) for lane, upto in self.store.depth().written.items()]
        return [*trims, Advance(limit=_ACKNOWLEDGED)]

    def _together(self, count: int, *first: Operation) -> None:
        """Commit the ends of one batch, the starts of the next and the claims of the one after."""
        ends, starts = self._finishes(), self._starts()
        answers = self._apply([*first, *ends, *starts, Claim(limit=count)])
        self._started = [answer for answer in answers if isinstance(answer, Started)]
        claimed = answers[-1]
        assert isinstance(claimed, Claimed)
        self._claimed = [task.task_id for task in claimed.tasks]

    def _finishes(self) -> list[Operation]:
        return [Finish(task_id=one.task_id, fence=one.fence, outcome=_DONE) for one in self._started]

    def _starts(self) -> list[Operation]:
        starts: list[Operation] = [_start(task_id) for task_id in self._claimed]
        self._claimed = []
        return starts

    def forget(self) -> None:
        """See Queue: the coordinator acknowledges the reports, and the oldest ended tasks go."""
        self.settle()
        depth = self.store.depth()
        for lane, upto in depth.written.items():
            for mark in range(upto - depth.outbox.get(lane, 0), upto, _ACKNOWLEDGED):
                self._apply([TrimOutbox(lane=lane, upto=min(upto, mark + _ACKNOWLEDGED)), Advance(limit=200)])

    def _apply(self, operations: Sequence[Operation]) -> list[object]:
        return list(self.store.apply(operations, now=self._clock.now()))

    def pids(self) -> Sequence[int]:
        """See Queue."""
        return ()

    def close(self) -> None:
        """See Queue."""
        self.store.close()


_kinds = itertools.cycle(("detect/yolo", "hear/pitch", "count/people", "read/meter"))


def task_of(body: bytes) -> TaskSpec:
    """Return a task whose document weighs about as much as the bodies of the other systems."""
    return TaskSpec(spec=CommandSpec(argv=("/bin/true", body[:160].decode())), kind=next(_kinds), priority=4)


def _start(task_id: TaskId) -> Start:
    decision = Decision(
        task_id=task_id,
        decided_by="baseline:min-increase",
        node="edge-1",
        device="cpu-0",
        reason="the shortest queue",
    )
    return Start(task_id=task_id, device="cpu-0", decision=decision)


def open_queue(directory: Path, durable: bool) -> SkerryQueue:
    """Open Skerry's store."""
    return SkerryQueue(directory, durable)
