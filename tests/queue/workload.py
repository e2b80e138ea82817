"""A process that produces and consumes on one store, and says on standard output what it was promised.

Each line is written after the commit it speaks of, so whoever reads the pipe knows only acknowledged facts.
Run with the database's path and a random seed; it works until it is killed.
"""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Sequence
from pathlib import Path

from skerry.clock import SystemClock
from skerry.ids import TaskIdSource
from skerry.lock import DirectoryLock
from skerry.testing import a_task
from task_queue.operations import (
    Answer,
    Claim,
    Claimed,
    Enqueue,
    Enqueued,
    Fail,
    Finish,
    Operation,
    Start,
    Started,
)
from task_queue.sqlite_store import SqliteStore
from task_queue.testing import FAILED, ROOMY, SUCCEEDED


def say(word: str, *facts: str) -> None:
    """Write one whole line at once: a kill cannot cut it in two."""
    os.write(1, (" ".join((word, *facts)) + "\n").encode())


class Workload:
    """Small random commits: enqueue, claim and start, finish or fail."""

    def __init__(self, path: Path, seed: int) -> None:
        self.clock = SystemClock()
        self.store = SqliteStore.open(path, now=self.clock.now(), wall_s=self.clock.wall_s, limits=ROOMY)
        self.ids = TaskIdSource(self.clock.wall_s)
        self.rng = random.Random(seed)
        self.running: list[Started] = []

    def apply(self, *ops: Operation) -> Sequence[Answer]:
        return self.store.apply(ops, now=self.clock.now())

    def produce(self) -> None:
        key = self.rng.choice([None, "a", "b"])
        effect = self.rng.choice(["idempotent", "at_most_once"])
        task = a_task(ordering_key=key, effect=effect, retries=100)
        count = self.rng.choice([1, 1, 8])
        for answer in self.apply(*(Enqueue(task_id=self.ids.next(), task=task) for _ in range(count))):
            assert isinstance(answer, Enqueued)
            say("accepted", answer.task_id)

    def begin(self) -> None:
        (claimed,) = self.apply(Claim(limit=self.rng.randint(1, 4)))
        assert isinstance(claimed, Claimed)
        for answer in self.apply(*(Start(task_id=task.task_id, device="cpu0") for task in claimed.tasks)):
            assert isinstance(answer, Started)
            say("started", answer.task_id, str(answer.fence))
            self.running.append(answer)

    def end(self) -> None:
        while self.running:
            run = self.running.pop()
            if self.rng.random() < 0.2:
                self.apply(Fail(task_id=run.task_id, fence=run.fence, outcome=FAILED))
            else:
                self.apply(Finish(task_id=run.task_id, fence=run.fence, outcome=SUCCEEDED))
                say("done", run.task_id, str(run.fence))


def main(path: Path, seed: int) -> None:
    """Work until killed."""
    with DirectoryLock(path.parent):
        workload = Workload(path, seed)
        say("open", str(workload.store.session))
        while True:
            workload.rng.choice([workload.produce, workload.begin, workload.end])()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
