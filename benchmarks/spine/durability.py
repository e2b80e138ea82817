"""Durable submits per second through the agent's own path, beside raw synced writes on the same disk.

The path is the one behind `POST /v1/tasks`, without HTTP: a coroutine hands an Enqueue to the StoreWriter and
waits for the synced commit. On a disk that syncs in a fraction of a millisecond the processor is the limit.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from benchmarks.harness import Baseline, BenchmarkError, Goal, Result, Run, result
from skerry.clock import Instant, SystemClock
from skerry.ids import TaskId, TaskIdSource
from skerry.task import CommandSpec, TaskSpec
from task_queue.operations import Answer, Enqueue, Enqueued, Operation
from task_queue.sqlite_store import SqliteStore
from task_queue.writer import StoreWriter

_BLOCK = b"\0" * 4096  # what one small commit adds to a log, about
_TASK = TaskSpec(spec=CommandSpec(argv=("/bin/true",)), kind="benchmark/submit")
#: waiters → the goal against the disk's own rate. Alone, the cost beside the sync is judged by itself.
_GOALS = {1: None, 64: Goal(">=", 2.0, of_baseline=True)}


class _CountingStore(SqliteStore):
    """Counts its commits."""

    commits = 0

    def apply(self, operations: Sequence[Operation], *, now: Instant) -> list[Answer]:
        """See Store."""
        self.commits += 1
        return super().apply(operations, now=now)


def measure(run: Run, directory: Path) -> Iterator[Result]:
    """Measure one waiter, then 64 at once; the raw rate is taken before and after each repeat."""
    repeats, duration_s = run.size(5, 3), run.duration_s(3.0, 1.0)
    yield result(
        "spine.submits.sync_ms",
        "one synced write of this disk, 4 KiB, mean",
        1000 / synced_writes_per_s(directory, duration_s),
        "ms",
    )
    for waiters, goal in _GOALS.items():
        raw: list[float] = []
        ours: list[float] = []
        shared: list[float] = []
        for number in range(repeats):
            raw.append(synced_writes_per_s(directory, duration_s / 3))
            rate, per_commit = _submits(directory / f"store-{waiters}-{number}", waiters, duration_s)
            ours.append(rate)
            shared.append(per_commit)
            raw.append(synced_writes_per_s(directory, duration_s / 3))
        yield result(
            f"spine.submits.waiters_{waiters}_per_s",
            f"durable submits, {waiters} waiting at once",
            statistics.median(ours),
            "/s",
            goal=goal,
            baseline=Baseline(what="4 KiB append and fdatasync", value=statistics.median(raw)),
        )
        if waiters == 1:
            yield result(
                "spine.submits.overhead_ms",
                "what one submit costs beside its synced write",
                1000 / statistics.median(ours) - 1000 / statistics.median(raw),
                "ms",
                goal=Goal("<=", 1.0),
            )
        else:
            yield result(
                f"spine.submits.waiters_{waiters}_per_commit",
                f"submits that share a synced commit, {waiters} waiting at once",
                statistics.median(shared),
                "submits",
                goal=Goal(">=", 16.0),
            )


def _submits(directory: Path, waiters: int, duration_s: float) -> tuple[float, float]:
    """Return (submits per second, submits per commit) on a fresh store."""
    clock = SystemClock()
    store = _CountingStore.open(directory / "queue.db", now=clock.now(), wall_s=clock.wall_s)
    writer = StoreWriter(store, clock)
    try:
        ids, before = TaskIdSource(clock.wall_s), store.commits
        began = time.perf_counter()
        count = asyncio.run(_all_waiters(writer, ids.next, waiters, began + duration_s))
        rate = count / (time.perf_counter() - began)
        return rate, count / (store.commits - before)
    finally:
        writer.close()
        store.close()


async def _all_waiters(writer: StoreWriter, next_id: Callable[[], TaskId], waiters: int, until: float) -> int:
    counts = await asyncio.gather(*(_waiter(writer, next_id, until) for _ in range(waiters)))
    return sum(counts)


async def _waiter(writer: StoreWriter, next_id: Callable[[], TaskId], until: float) -> int:
    """Return how many submits were answered: at least one, however late the first could begin."""
    count = 0
    while count == 0 or time.perf_counter() < until:
        [answer] = await writer.commit([Enqueue(task_id=next_id(), task=_TASK, wall_s=time.time())])
        if not isinstance(answer, Enqueued):
            raise BenchmarkError(f"the store refused a submit: {answer}")
        count += 1
    return count


def synced_writes_per_s(directory: Path, duration_s: float) -> float:
    """Return how many 4 KiB appends, each followed by fdatasync, this disk takes in a second."""
    path = directory / "synced-writes"
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        count, began = 0, time.perf_counter()
        while count == 0 or time.perf_counter() - began < duration_s:
            os.write(handle, _BLOCK)
            os.fdatasync(handle)
            count += 1
        return count / (time.perf_counter() - began)
    finally:
        os.close(handle)
        path.unlink()
