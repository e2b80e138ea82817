"""What random histories know of the queue, little on purpose, and the steps that their rules are made of.

The ids that were accepted, the fences under which each was started, what has ended, and in which order the
tasks of a key were accepted. Every step commits on both stores and compares their answers.
"""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

from hypothesis.stateful import RuleBasedStateMachine, initialize

from skerry.fence import Fence
from skerry.ids import TaskId, TaskIdSource
from skerry.messages import Lane
from skerry.testing import ManualClock
from task_queue.operations import (
    Answer,
    Changed,
    Claim,
    Claimed,
    Fail,
    Finish,
    HandOver,
    Operation,
    Park,
    RefusePlacement,
    Release,
    Start,
    Started,
)
from task_queue.store import Store
from task_queue.task import FINAL, State
from task_queue.testing import FAILED, SUCCEEDED, check_invariants, memory_opener, sqlite_opener
from task_queue.testing_lossy_disk import LossyDisk, on_lossy_disks

#: Nothing here depends on power: a memory file system saves the syncs' time where there is one.
FAST = "/dev/shm" if Path("/dev/shm").is_dir() else None
VFS = "history"


class QueueModel(RuleBasedStateMachine):
    """Both stores, and what the laws need to be judged."""

    @initialize()
    def open_stores(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="queue-", dir=FAST))
        self.disk = LossyDisk(VFS)
        self.on_lossy_disk = ExitStack()
        self.on_lossy_disk.callback(self.disk.unregister)
        self.on_lossy_disk.enter_context(on_lossy_disks(lambda path: VFS))
        self.marks: Counter[Lane] = Counter()
        self.clock = ManualClock()
        self.ids = TaskIdSource(self.clock.wall_s, random_bits=lambda bits: 1)
        self.openers = [sqlite_opener(self.folder), memory_opener()]
        self.stores: list[Store] = [opener(self.clock) for opener in self.openers]
        self.accepted: list[TaskId] = []
        self.order: dict[str, list[TaskId]] = {}
        self.keys: dict[TaskId, str] = {}
        self.fences: dict[TaskId, list[Fence]] = {}
        self.running: dict[TaskId, Fence] = {}
        self.claimed: set[TaskId] = set()
        self.succeeded: set[TaskId] = set()
        self.known: dict[TaskId, Fence] = {}  # the highest placement that was accepted for a task
        self.placements = 0

    def teardown(self) -> None:
        try:
            self.assert_stories()
            for store in self.stores:
                check_invariants(store)
                store.close()
        finally:
            self.on_lossy_disk.close()
            shutil.rmtree(self.folder)

    def assert_stories(self) -> None:
        """Every story is the same in both stores, and tells of one beginning and at most one success."""
        for task_id in self.accepted:
            story, other = (store.story(task_id) for store in self.stores)
            assert [(each.what, each.fence) for each in story] == [(each.what, each.fence) for each in other]
            words = Counter(each.what for each in story)
            assert story[0].what == "accepted"
            assert words["succeeded"] == (task_id in self.succeeded), words
            started = [each.fence for each in story if each.what == "started"]
            assert started == self.fences.get(task_id, []), "an attempt is not told, or told twice"

    def do(self, *ops: Operation) -> list[Answer]:
        """Commit on both stores and compare the answers."""
        sqlite, memory = (store.apply(ops, now=self.clock.now()) for store in self.stores)
        assert sqlite == memory
        return sqlite

    def one(self, op: Operation) -> Answer:
        return self.do(op)[0]

    def state(self, task_id: TaskId) -> State:
        record = self.stores[0].get(task_id)
        assert record is not None, f"{task_id} was accepted and is gone"
        return record.state

    def left(self, answer: Answer) -> None:
        """Note that a task left the window, or its attempt ended."""
        if isinstance(answer, Changed) and answer.state is not answer.was:
            self.claimed.discard(answer.task_id)
            self.running.pop(answer.task_id, None)

    def next_placement(self) -> Fence:
        self.placements += 1
        return Fence((1, self.placements))

    def to_the_back(self, task_id: TaskId) -> None:
        if task_id in self.keys:
            order = self.order[self.keys[task_id]]
            order.remove(task_id)
            order.append(task_id)

    def claim_some(self, limit: int) -> list[TaskId]:
        answer = self.one(Claim(limit=limit))
        assert isinstance(answer, Claimed)
        for claimed in answer.tasks:
            assert claimed.task_id not in self.claimed | set(self.running)
            assert claimed.task_id not in self.succeeded, "a finished task runs again"
            self.assert_in_turn(claimed.task_id)
            self.claimed.add(claimed.task_id)
        return [claimed.task_id for claimed in answer.tasks]

    def start_some(self, limit: int) -> None:
        for task_id in self.claim_some(limit):
            self.start_one(task_id)

    def assert_in_turn(self, task_id: TaskId) -> None:
        if task_id in self.keys:
            order = self.order[self.keys[task_id]]
            older = order[: order.index(task_id)]
            assert all(self.state(other) in FINAL for other in older), "a task overtook its key"

    def start_one(self, task_id: TaskId) -> None:
        answer = self.one(Start(task_id=task_id, device="cpu0"))
        assert isinstance(answer, Started), answer
        used = self.fences.setdefault(task_id, [])
        assert answer.fence not in used, "two attempts under one fence"
        assert all(fence < answer.fence for fence in used), "a later attempt under a lower fence"
        used.append(answer.fence)
        self.claimed.discard(task_id)
        self.running[task_id] = answer.fence

    def leave(self, task_id: TaskId, how: str) -> None:
        ops: dict[str, Operation] = {
            "release": Release(task_id=task_id),
            "park": Park(task_id=task_id, reason="r"),
            "hand_over": HandOver(task_id=task_id, reason="r"),
            "refuse": RefusePlacement(task_id=task_id, reason="r"),
        }
        self.left(self.one(ops[how]))

    def end_all_stale(self) -> None:
        for task_id, fences in self.fences.items():
            before = self.state(task_id)
            for fence in fences:
                if fence != self.running.get(task_id):
                    self.do(
                        Finish(task_id=task_id, fence=fence, outcome=SUCCEEDED),
                        Fail(task_id=task_id, fence=fence, outcome=FAILED),
                    )
            assert self.state(task_id) is before, "a stale attempt changed its task"

    def away(self) -> list[TaskId]:
        return [task_id for task_id in self.accepted if self.state(task_id) is State.HANDED_OVER]
