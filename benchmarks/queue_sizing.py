"""What a queue takes of its disk: bytes a task stays, and bytes written over its life, by payload.

Owns the figures behind docs/reference/queue-limits.md, from which outages and wear are computed there.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.harness import Result, Run, result
from skerry.decision import Decision
from skerry.ids import TaskId, TaskIdSource
from skerry.messages import Lane, Outcome
from skerry.task import CommandSpec, TaskSpec
from skerry.testing import ManualClock
from task_queue.limits import Limits
from task_queue.operations import (
    Advance,
    Answer,
    Claim,
    Claimed,
    Enqueue,
    Finish,
    Operation,
    Start,
    Started,
    TrimOutbox,
)
from task_queue.sqlite_store import SqliteStore

PAYLOADS = (256, 1024, 4096, 16_384)
#: Nothing is kept for a look: what stays is what must. No ballast: only the database is measured.
_LIMITS = Limits(max_bytes=1 << 34, ballast_bytes=0, control_ballast_bytes=0, keep_ended=0)
_OUTCOME = Outcome(
    status="succeeded", result={"stdout": "x" * 64}, node="edge-1", device="cpu0", runtime_s=0.1
)


def measure(run: Run) -> Iterator[Result]:
    """Measure each payload in a new file."""
    for payload in PAYLOADS:
        run.say(f"tasks of {payload} bytes")
        with tempfile.TemporaryDirectory(prefix="skerry-bench-") as folder:
            tasks = run.size(20_000, 2000) * PAYLOADS[0] * 4 // (PAYLOADS[0] * 3 + payload)
            yield from _kept(Path(folder), payload, tasks)
        for batch in (1, 50):
            with tempfile.TemporaryDirectory(prefix="skerry-bench-") as folder:
                yield _written(Path(folder), payload, batch, run.size(2000, 200))


class _Queue:
    """A store with its clock, driven in batches."""

    def __init__(self, folder: Path, payload: int) -> None:
        self.clock = ManualClock()
        self.path = folder / "queue.db"
        self.store = SqliteStore.open(
            self.path, now=self.clock.now(), wall_s=self.clock.wall_s, limits=_LIMITS
        )
        self._ids = TaskIdSource(self.clock.wall_s)
        self._task = TaskSpec(spec=CommandSpec(argv=("x" * payload,)), kind="detect/yolo-n")

    def apply(self, *operations: Operation) -> list[Answer]:
        self.clock.advance(0.1)
        return self.store.apply(operations, now=self.clock.now())

    def put(self, count: int) -> None:
        self.apply(*(Enqueue(task_id=self._ids.next(), task=self._task) for _ in range(count)))

    def run(self, count: int) -> int:
        (claimed,) = self.apply(Claim(limit=count))
        assert isinstance(claimed, Claimed)
        started = self.apply(*(_start(task.task_id) for task in claimed.tasks))
        fences = [answer for answer in started if isinstance(answer, Started)]
        self.apply(*(Finish(task_id=a.task_id, fence=a.fence, outcome=_OUTCOME) for a in fences))
        return len(fences)

    def used_bytes(self) -> int:
        return self.store.usage().used_bytes


def _start(task_id: TaskId) -> Start:
    decision = Decision(
        task_id=task_id, decided_by="baseline:min-increase", device="cpu0", reason="it is free"
    )
    return Start(task_id=task_id, device="cpu0", decision=decision)


def _kept(folder: Path, payload: int, tasks: int) -> Iterator[Result]:
    """Fill the queue; run everything while no coordinator answers; then let it answer."""
    queue = _Queue(folder, payload)
    empty = queue.used_bytes()
    for _ in range(tasks // 50):
        queue.put(50)
    waiting = queue.used_bytes() - empty
    while queue.run(50):
        pass
    for _ in range(tasks // 1000 + 2):
        queue.apply(Advance())
    reported = queue.used_bytes() - empty
    queue.apply(TrimOutbox(lane=Lane.BACKLOG, upto=1 << 40))
    for _ in range(tasks // 5000 + 2):
        queue.apply(Advance())
    remembered = queue.used_bytes() - empty
    queue.store.close()
    count, name = tasks // 50 * 50, f"sizing.{payload}"
    yield result(f"{name}.waiting", f"a task of {payload} bytes that waits", waiting / count, "B")
    yield result(f"{name}.report", "the same, run, while its report waits", reported / count, "B")
    yield result(f"{name}.remembered", "the same, reported: its id and key", remembered / count, "B")


def _written(folder: Path, payload: int, batch: int, tasks: int) -> Result:
    """Return what is handed to the disk for one task from its submission to its report's acknowledgement."""
    queue = _Queue(folder, payload)
    before = _bytes_written()
    for _ in range(tasks // batch):
        queue.put(batch)
        queue.run(batch)
        queue.apply(TrimOutbox(lane=Lane.BACKLOG, upto=1 << 40), Advance())
    queue.store.close()
    written = (_bytes_written() - before) / (tasks // batch * batch)
    what = f"written for a task of {payload} bytes over its life, in batches of {batch}"
    return result(f"sizing.{payload}.written_{batch}", what, written / 1024, "KiB")


def _bytes_written() -> int:
    """Return what this process has handed to the kernel for writing, ever (log and file)."""
    lines = Path("/proc/self/io").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("wchar:"))
