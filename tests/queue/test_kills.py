"""SIGKILL of a real process at random moments: what it was promised is there, and each end is there once."""

from __future__ import annotations

import random
import subprocess
import sys
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

import apsw
import msgspec
import pytest

from skerry.fence import parse_fence
from skerry.ids import TaskId
from skerry.lock import DirectoryLock
from skerry.messages import Lane, TaskEnded
from skerry.testing import ManualClock
from task_queue.sqlite_store import SqliteStore
from task_queue.store import Store, TaskFilter
from task_queue.task import FINAL, State
from task_queue.testing import ROOMY, check_invariants

WORKLOAD = Path(__file__).with_name("workload.py")
KILLS = 15


@dataclass
class Promised:
    """What the killed processes said that they had been told."""

    accepted: set[TaskId] = field(default_factory=set)
    started: dict[TaskId, list[str]] = field(default_factory=lambda: defaultdict(list))
    done: dict[TaskId, str] = field(default_factory=dict)

    def hear(self, line: str) -> None:
        word, *facts = line.split()
        if word == "accepted":
            self.accepted.add(TaskId(facts[0]))
        elif word == "started":
            self.started[TaskId(facts[0])].append(facts[1])
        elif word == "done":
            assert facts[0] not in self.done, f"{facts[0]} was finished twice"
            self.done[TaskId(facts[0])] = facts[1]


def run_and_kill(path: Path, seed: int, lines: int, promised: Promised) -> None:
    """Let a process work until it has said so many lines, kill it, and read what else it had said."""
    command = [sys.executable, str(WORKLOAD), str(path), str(seed)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for _, line in zip(range(lines), process.stdout, strict=False):
            promised.hear(line)
        process.kill()
        for line in process.stdout:
            promised.hear(line)
        assert process.wait(30) == -9, "the process ended by itself"


@pytest.mark.chaos
def test_kills_at_random_moments_lose_nothing_and_end_nothing_twice(tmp_path: Path) -> None:
    rng = random.Random(20260)
    path = tmp_path / "queue.db"
    promised = Promised()
    clock = ManualClock()

    for kill in range(KILLS):
        run_and_kill(path, rng.randrange(1 << 30), rng.randint(2, 150), promised)
        assert integrity(path) == ["ok"], f"after kill {kill}"
        with DirectoryLock(tmp_path):  # it ended with the process
            store = SqliteStore.open(path, now=clock.now(), wall_s=clock.wall_s, limits=ROOMY)
            compare(store, promised)
            store.close()

    assert len(promised.accepted) > 100
    assert len(promised.done) > 30


def compare(store: Store, promised: Promised) -> None:
    """Hold the store against every promise, task by task."""
    check_invariants(store)
    records = {record.task_id: record for record in store.find(TaskFilter(limit=1_000_000))}
    assert promised.accepted <= set(records), "an acknowledged task is lost"
    for task_id, fence in promised.done.items():
        assert records[task_id].state is State.DONE, f"{task_id} was done and is {records[task_id].state}"
        assert str(records[task_id].fence) == fence
    for task_id, fences in promised.started.items():
        assert len(set(fences)) == len(fences), f"{task_id} ran twice under one fence: {fences}"
        assert fences == sorted(fences, key=lambda text: parse_fence(text).attempt)
    reports = [
        msgspec.json.decode(row.body, type=TaskEnded).task_id
        for row in store.outbox(Lane.BACKLOG, 0, limit=1_000_000, limit_bytes=1 << 30)
    ]
    ended = sorted(task_id for task_id, record in records.items() if record.state in FINAL)
    assert sorted(reports) == ended, "each end is reported once"


def integrity(path: Path) -> list[str]:
    db = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
    try:
        return [str(line) for (line,) in db.execute("PRAGMA integrity_check")]
    finally:
        db.close()
