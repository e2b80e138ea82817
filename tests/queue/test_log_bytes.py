"""What a task costs in the write-ahead log over its life, in batches, with story and decision record."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from skerry.decision import Candidate, Decision
from skerry.messages import Lane, Outcome
from skerry.testing import ManualClock, a_task
from task_queue.limits import MIB
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
from task_queue.task import State
from task_queue.testing import ROOMY, QueueDriver

TASKS = 2000
KEPT = 500


class Life:
    """Tasks from door to oblivion: put by 100, started and ended by 50, told, forgotten."""

    def __init__(self, path: Path) -> None:
        limits = msgspec.structs.replace(ROOMY, keep_ended=KEPT, max_bytes=512 * MIB)

        def open_store(clock: ManualClock) -> SqliteStore:
            return SqliteStore.open(path, now=clock.now(), wall_s=clock.wall_s, limits=limits)

        self.q = QueueDriver(open_store)
        self.store = self.q.store
        assert isinstance(self.store, SqliteStore)
        self.db = self.store._db  # to stand still while the log grows
        self.log = path.with_name(path.name + "-wal")

    def put(self) -> None:
        task = a_task(("detect", "x" * 150), kind="detect/yolo-n")
        for _ in range(TASKS // 100):
            self.q.apply(*(Enqueue(task_id=self.q.ids.next(), task=task) for _ in range(100)))
            self.q.clock.advance(0.5)

    def run(self) -> None:
        ends: list[Operation] = []
        answers: list[Answer] = [Claimed(tasks=())]
        while answers:
            taken = self.q.one(Claim(limit=50))
            assert isinstance(taken, Claimed)
            starts = [self.start(task.task_id) for task in taken.tasks]
            answers = self.q.apply(*ends, *starts)
            ends = [self.end(answer) for answer in answers if isinstance(answer, Started)]
            self.q.clock.advance(0.5)

    def start(self, task_id: str) -> Start:
        uptime_s, wall_s = self.q.clock.uptime_s + 0.0123456789, self.q.clock.wall_s() + 0.0123456789
        decision = Decision(
            task_id=task_id,
            decided_by="baseline:min-increase",
            node="edge-7",
            device="npu0",
            reason="it is done soonest there",
            candidates=tuple(
                Candidate(node="edge-7", device=device, device_class=device[:3], score=score, expected_s=at_s)
                for device, score, at_s in (
                    ("npu0", 87.25431, 0.1312345678),
                    ("gpu0", 61.29876543, 0.3512345),
                    ("cpu0", 12.812345, 1.2512345),
                )
            ),
            uptime_s=uptime_s,
            wall_s=wall_s,
        )
        return Start(task_id=task_id, device="npu0", decision=decision)  # type: ignore[arg-type]

    def end(self, started: Started) -> Finish:
        outcome = Outcome(
            status="succeeded",
            result=1,
            node="edge-7",
            device="npu0",
            device_class="npu",
            decided_by="baseline:min-increase",
            runtime_s=0.1312,
        )
        return Finish(task_id=started.task_id, fence=started.fence, outcome=outcome)

    def tell(self) -> None:
        self.q.one(TrimOutbox(lane=Lane.BACKLOG, upto=1 << 40))

    def forget(self) -> None:
        for _ in range(TASKS // 1000 + 1):
            self.q.one(Advance())

    def logged(self, *phases: str) -> float:
        """Return KiB of log per task that the phases write."""
        total = 0
        for phase in phases:
            self.db.execute("PRAGMA wal_autocheckpoint = 0").fetchall()
            self.db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            getattr(self, phase)()
            total += self.log.stat().st_size
        return total / TASKS / 1024


@pytest.fixture
def life(tmp_path: Path) -> Iterator[Life]:
    """A queue in which one generation of tasks has been already: pages are used again."""
    life = Life(tmp_path / "queue.db")
    life.logged("put", "run", "tell", "forget")
    yield life
    life.store.close()


def test_a_task_s_life_takes_two_and_a_half_kib_of_log(life: Life) -> None:
    logged = life.logged("put", "run", "tell")

    assert life.store.depth().by_state[State.DONE] == TASKS + KEPT
    assert logged <= 2.5


def test_and_half_a_kib_more_when_its_record_is_forgotten(life: Life) -> None:
    logged = life.logged("put", "run", "tell", "forget")

    assert life.store.depth().by_state[State.DONE] == KEPT
    assert logged <= 3.1
