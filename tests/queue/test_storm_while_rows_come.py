"""Random work while the rows of a damaged file come back slowly, the file given up again and again.

Kills and failing disks in between. Every answer is judged by a plain model, and so is the end.
"""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TypeVar

import apsw
import hypothesis.strategies as st
import msgspec
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from skerry.errors import StorageFailed
from skerry.fence import Fence
from skerry.ids import TaskId, TaskIdSource
from skerry.messages import Lane
from skerry.task import TaskSpec
from skerry.testing import ManualClock, a_task
from task_queue.operations import (
    Advance,
    AppendOutbox,
    Cancel,
    Changed,
    CountLoss,
    Enqueue,
    Enqueued,
    MarkInbox,
    PutMeta,
)
from task_queue.task import FINAL, State
from task_queue.testing import ROOMY, QueueDriver, check_invariants, ended_rows, sqlite_opener
from task_queue.testing_disk import integrity
from task_queue.testing_lossy_disk import LossyDisk, on_lossy_disks
from tests.queue.broken_queue import damage_now, finish_salvage
from tests.queue.queue_model import FAST

VFS = "storm"
#: The document is in the task's own page, in one of its own, or in several.
SIZES = (5, 5, 700, 5000)
ORDERING_KEYS = ("a", "b", "c")
ERRORS = {"full": apsw.FullError, "broken": apsw.IOError}

T = TypeVar("T")
pytestmark = pytest.mark.usefixtures("slow")


class StormMachine(RuleBasedStateMachine):
    """A queue that gets no rest, and what it has acknowledged."""

    @initialize(tasks=st.integers(20, 120), ended=st.integers(0, 40), keep_ended=st.sampled_from([3, 1000]))
    def damage_a_queue_with_something_in_it(self, tasks: int, ended: int, keep_ended: int) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="storm-", dir=FAST))
        self.disk = LossyDisk(VFS)
        self.disk.before_step = self.fail_in_time
        self.on_disk = ExitStack()
        self.on_disk.callback(self.disk.unregister)
        self.on_disk.enter_context(on_lossy_disks(lambda path: VFS))
        self.steps_left, self.error, self.failures = 0, "", 0
        self.accepted: list[TaskId] = []
        self.tasks: dict[TaskId, TaskSpec] = {}
        self.ended: dict[TaskId, State] = {}
        self.claimed: list[TaskId] = []
        self.running: dict[TaskId, Fence] = {}
        self.sent = self.losses = self.damages = 0
        self.written: Counter[str] = Counter()
        self.marks: Counter[str] = Counter()
        self.keeps_all = keep_ended > 3
        limits = msgspec.structs.replace(ROOMY, keep_ended=keep_ended)
        clock = ManualClock()
        self.q = QueueDriver(sqlite_opener(self.folder), clock, limits=limits)
        self.q.ids = TaskIdSource(clock.wall_s, random_bits=lambda bits: 1)
        for number in range(tasks):
            self.enqueue(
                ORDERING_KEYS[number % 9] if number % 9 < 3 else None, number % 2 > 0, SIZES[number % 4], True
            )
        while len(self.ended) < min(ended, tasks):
            self.claim_and_start(4)
            for _ in list(self.running):
                self.finish(0)
        for _ in range(3):
            self.pass_time()
        damage_now(self.q)

    def fail_in_time(self, kind: str) -> None:
        if self.steps_left > 0 and kind in ("write", "sync"):
            self.steps_left -= 1
            if self.steps_left == 0:
                self.failures += 1
                raise ERRORS[self.error]("injected")

    def attempt(self, act: Callable[[], T]) -> T | None:
        """Return the answer; None when it was refused, for which there must be a reason."""
        failures = self.failures
        try:
            return act()
        except StorageFailed as error:
            is_closed = "connection has been closed" in str(error)  # the disk hindered its opening
            if self.failures == failures and "brought back" not in str(error) and not is_closed:
                raise
            return None

    # --- work

    @rule(
        key=st.sampled_from([None, *ORDERING_KEYS]),
        has_request=st.booleans(),
        size=st.sampled_from(SIZES),
        may_repeat=st.booleans(),
    )
    def enqueue(self, key: str | None, has_request: bool, size: int, may_repeat: bool) -> None:
        task_id = self.q.ids.next()
        task = a_task(
            argv=("echo", "x" * size),
            ordering_key=key,
            idempotency_key=f"r-{task_id}" if has_request else None,
            retries=100,
            effect="idempotent" if may_repeat else "at_most_once",
        )
        answer = self.attempt(lambda: self.q.one(Enqueue(task_id=task_id, task=task)))
        if answer is not None:
            assert answer == Enqueued(task_id=task_id)
            self.accepted.append(task_id)
            self.tasks[task_id] = task

    @rule(number=st.integers(0, 999))
    def enqueue_again(self, number: int) -> None:
        asked = [task_id for task_id in self.accepted if self.tasks[task_id].idempotency_key]
        if asked:
            self.ask_again(asked[number % len(asked)])

    def ask_again(self, task_id: TaskId) -> None:
        again = Enqueue(task_id=self.q.ids.next(), task=self.tasks[task_id])
        answer = self.attempt(lambda: self.q.one(again))
        assert answer in (None, Enqueued(task_id=task_id, is_new=False)), "accepted a second time"

    @rule(limit=st.integers(1, 4))
    def claim_and_start(self, limit: int) -> None:
        for task_id in self.attempt(lambda: self.q.claim(limit)) or []:
            assert task_id not in self.ended, f"{self.ended[task_id]}, and runs again"
            assert task_id not in self.running
            assert task_id not in self.claimed
            self.assert_in_turn(task_id)
            self.claimed.append(task_id)
        for task_id in list(self.claimed):
            fence = self.attempt(lambda task_id=task_id: self.q.start(task_id))  # type: ignore[misc]
            if fence is not None:
                self.claimed.remove(task_id)
                self.running[task_id] = fence

    def assert_in_turn(self, task_id: TaskId) -> None:
        key = self.tasks[task_id].ordering_key
        if key is not None:
            older = [other for other in self.accepted if self.tasks[other].ordering_key == key]
            older = older[: older.index(task_id)]
            assert self.ended.keys() >= set(older), "a task overtook its key"

    @precondition(lambda self: self.running)
    @rule(number=st.integers(0, 99))
    def finish(self, number: int) -> None:
        task_id = list(self.running)[number % len(self.running)]
        answer = self.attempt(lambda: self.q.finish(task_id, self.running[task_id]))
        if answer is not None:
            assert answer == Changed(task_id=task_id, state=State.DONE, was=State.RUNNING)
            del self.running[task_id]
            self.ended[task_id] = State.DONE

    @rule(number=st.integers(0, 999))
    def cancel(self, number: int) -> None:
        task_id = self.accepted[number % len(self.accepted)]
        if task_id in self.ended:
            return
        answer = self.attempt(lambda: self.q.one(Cancel(task_id=task_id)))
        if answer is not None:
            assert isinstance(answer, Changed), answer
            self.ended[task_id] = State.CANCELLED
            self.running.pop(task_id, None)
            self.claimed = [other for other in self.claimed if other != task_id]

    @rule(name=st.sampled_from(["a", "b"]))
    def write_beside(self, name: str) -> None:
        upto, value = self.marks[name] + 1, self.written[name] + 1
        ops = (
            AppendOutbox(lane=Lane.BACKLOG, kind="k", body=b"%d" % self.sent),
            CountLoss(lost_class="z", reason="x"),
            PutMeta(name=name, value=value),
            MarkInbox(source=name, epoch="e", lane=Lane.LIVE, upto=upto),
        )
        if self.attempt(lambda: self.q.apply(*ops)) is not None:
            self.sent += 1
            self.losses += 1
            self.written[name], self.marks[name] = value, upto

    @rule(number=st.integers(0, 999))
    def look(self, number: int) -> None:
        task_id = self.accepted[number % len(self.accepted)]
        record = self.attempt(lambda: self.q.store.get(task_id))
        if record is not None:
            ended = self.ended.get(task_id)
            assert record.state is ended if ended else record.state not in FINAL

    # --- time and trouble

    @rule()
    def pass_time(self) -> None:
        self.q.clock.advance(1.0)
        self.attempt(lambda: self.q.one(Advance()))

    @rule(slices=st.sampled_from([1, 1, 3, 30]))
    def let_rows_come(self, slices: int) -> None:
        for _ in range(slices):
            self.attempt(self.q.store.tidy)

    @precondition(lambda self: self.damages < 5)
    @rule()
    def damage_again(self) -> None:
        self.damages += 1
        self.attempt(lambda: damage_now(self.q))

    @rule(steps=st.integers(1, 12), error=st.sampled_from(sorted(ERRORS)))
    def disk_will_fail(self, steps: int, error: str) -> None:
        self.steps_left, self.error = steps, error

    @rule()
    def kill_and_reopen(self) -> None:
        """What was running begins again, or is over when it may run only once."""
        self.steps_left = 0
        left = Path(tempfile.mkdtemp(prefix="storm-", dir=FAST))
        shutil.copytree(self.folder, left, dirs_exist_ok=True, ignore=shutil.ignore_patterns("*-shm"))
        self.q.store.close()
        shutil.rmtree(self.folder)
        left.rename(self.folder)
        self.q.kill()
        once = [task_id for task_id in self.running if self.tasks[task_id].effect == "at_most_once"]
        self.ended.update(dict.fromkeys(once, State.UNKNOWN))
        self.running.clear()
        self.claimed.clear()

    # --- once all has come

    def teardown(self) -> None:
        try:
            self.steps_left = 0
            self.q.store.tidy()  # opens a file anew that the disk hindered, and only that
            finish_salvage(self.q)
            self.assert_the_rest_runs_once_and_in_turn()
            self.assert_all_is_told_once()
            check_invariants(self.q.store)
            self.q.store.close()
            assert integrity(self.folder / "queue.db") == ["ok"]
        finally:
            self.on_disk.close()
            shutil.rmtree(self.folder)

    def assert_the_rest_runs_once_and_in_turn(self) -> None:
        salvaged = self.q.store.salvaged  # None: it was over before the last kill
        assert salvaged is None or not salvaged.lost, salvaged
        check_invariants(self.q.store)
        while self.running or self.claimed or len(self.ended) < len(self.accepted):
            before = len(self.ended)
            self.claim_and_start(50)
            while self.running:
                self.finish(0)
            assert len(self.ended) > before, "accepted, and gone"
        assert self.q.claim() == []

    def assert_all_is_told_once(self) -> None:
        for task_id in self.accepted:
            if self.tasks[task_id].idempotency_key:
                self.ask_again(task_id)
            assert not self.keeps_all or self.q.state(task_id) is self.ended[task_id]
        told = Counter(each.task_id for each in ended_rows(self.q, Lane.BACKLOG))
        assert told == Counter(self.accepted), "an end was told twice, or not at all"
        rows = self.q.store.outbox(Lane.BACKLOG, 0, limit=10_000, limit_bytes=1 << 30)
        assert sorted(int(row.body) for row in rows if row.kind == "k") == list(range(self.sent))
        assert sum(each.rows for each in self.q.store.losses() if each.lost_class == "z") == self.losses
        for name, value in self.written.items():
            assert self.q.store.meta(name) == value
            assert self.q.store.inbox_mark(name, "e", Lane.LIVE) == self.marks[name]


StormMachine.TestCase.settings = settings(
    max_examples=18,
    stateful_step_count=40,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
TestStormMachine = StormMachine.TestCase
