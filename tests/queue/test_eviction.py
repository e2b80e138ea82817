"""Whatever happens while room is short: no task, report or state is evicted, every missing row is counted."""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skerry.errors import StorageFailed
from skerry.ids import TaskId
from skerry.messages import Lane
from skerry.testing import a_task
from task_queue.limits import MIB, Limits
from task_queue.operations import (
    Advance,
    Appended,
    AppendOutbox,
    Cancel,
    Dropped,
    Enqueue,
    Enqueued,
    Operation,
    TrimOutbox,
)
from task_queue.retention import RowClass, class_of
from task_queue.testing import QueueDriver, check_invariants, memory_opener, sqlite_opener

LIMITS = Limits(
    max_bytes=MIB, ballast_bytes=0, control_ballast_bytes=0, free_floor_bytes=0, keep_ended=20, remember_s=0
)
KINDS = ("decision.recorded", "task.ended", "policy.report", "gate.evidence", "not.known")

appends = st.builds(
    lambda lane, kind, size, count: [AppendOutbox(lane=lane, kind=kind, body=b"1" * size)] * count,
    st.sampled_from(Lane),
    st.sampled_from(KINDS),
    st.sampled_from([1, 900, 6000]),
    st.sampled_from([1, 10, 40]),
)
steps = st.lists(
    st.one_of(
        appends,
        st.builds(lambda lane, back: ("trim", lane, back), st.sampled_from(Lane), st.integers(0, 300)),
        st.sampled_from(["submit", "run", "cancel", "advance", "kill"]),
    ),
    min_size=10,
    max_size=60,
)


class Ledger:
    """What a producer was told, compared with what the store holds."""

    def __init__(self, q: QueueDriver) -> None:
        self.q = q
        self.kept: Counter[RowClass] = Counter()  #: accepted rows
        self.dropped = 0
        self.acknowledged: Counter[RowClass] = Counter()
        self.tasks: list[str] = []
        self.ended: set[str] = set()

    def apply(self, *operations: Operation) -> None:
        """Commit, and remember what was accepted; a refused commit promises nothing."""
        try:
            answers = self.q.apply(*operations)
        except StorageFailed:
            return
        for operation, answer in zip(operations, answers, strict=True):
            if isinstance(operation, AppendOutbox):
                self.kept[class_of(operation.kind)] += isinstance(answer, Appended)
                self.dropped += answer == Dropped()
            if isinstance(answer, Enqueued):
                self.tasks.append(answer.task_id)

    def fill(self) -> None:
        """Begin where room is short."""
        for kind, size in (("decision.recorded", 2000), ("task.ended", 4000)):
            for _ in range(10):
                self.apply(*[AppendOutbox(lane=Lane.BACKLOG, kind=kind, body=b"1" * size)] * 14)

    def trim(self, lane: Lane, back: int) -> None:
        """Have the other side acknowledge the first rows of a lane."""
        rows = self.q.store.outbox(lane, 0, limit=back + 1, limit_bytes=1 << 30)
        if rows:
            self.q.store.note_sent(lane, rows[-1].seq)
            self.acknowledged.update(class_of(row.kind) for row in rows)
            self.apply(TrimOutbox(lane=lane, upto=rows[-1].seq))

    def work(self, word: str) -> None:
        """Do what a word stands for."""
        q = self.q
        q.clock.advance(1)
        if word == "submit":
            self.apply(
                *(Enqueue(task_id=q.ids.next(), task=a_task(("x" * 900,), priority=n)) for n in range(10))
            )
        elif word == "advance":
            q.clock.advance(10)
            self.apply(Advance())
        elif word == "kill":
            q.kill()
        elif word == "cancel":
            claimed = q.claim(3)
            self.apply(*(Cancel(task_id=task_id) for task_id in claimed))
            self.ended.update(claimed)
        else:
            self.run()

    def run(self) -> None:
        """Run a few tasks to their ends."""
        q = self.q
        try:
            for task_id in q.claim(3):
                q.finish(task_id, q.start(task_id))
                self.ended.add(task_id)
        except StorageFailed:
            return

    def check(self) -> None:
        """Compare."""
        store = self.q.store
        held = {name: amount.rows for name, amount in store.depth().by_class.items()}
        lost = {(loss.lost_class, loss.reason): loss.rows for loss in store.losses()}
        evicted = lost.get((RowClass.TELEMETRY, "evicted"), 0)
        refused = lost.get((RowClass.TELEMETRY, "refused"), 0) + lost.get((RowClass.TELEMETRY, "sampled"), 0)
        telemetry, task = RowClass.TELEMETRY, RowClass.TASK
        assert held[task] == self.kept[task] - self.acknowledged[task]
        assert held[telemetry] == self.kept[telemetry] - self.acknowledged[telemetry] - evicted
        assert refused == self.dropped
        assert held[RowClass.STATE] == self.kept[RowClass.STATE] - self.acknowledged[RowClass.STATE]
        assert all(store.get(TaskId(task_id)) is not None for task_id in self.open_tasks())
        check_invariants(store)

    def open_tasks(self) -> list[str]:
        """Return what was accepted and has not ended by its own terms."""
        return [task_id for task_id in self.tasks if task_id not in self.ended]


@pytest.mark.parametrize("is_on_disk", [False, True], ids=["memory", "sqlite"])
@settings(max_examples=20, deadline=None, derandomize=True)
@given(script=steps)
def test_what_is_missing_is_what_was_counted(is_on_disk: bool, script: list[object]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        opener = sqlite_opener(Path(folder)) if is_on_disk else memory_opener()
        ledger = Ledger(QueueDriver(opener, limits=LIMITS, reports=False))  # rows are the test's own only
        ledger.fill()
        for step in script:
            if isinstance(step, list):
                ledger.apply(*step)
            elif isinstance(step, tuple):
                ledger.trim(step[1], step[2])
            else:
                ledger.work(str(step))
        ledger.check()
        ledger.q.store.close()
