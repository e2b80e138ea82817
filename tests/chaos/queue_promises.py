"""What the owners of a queue said that they had been told, and the comparison of the store with it.

Exact for every task that the store still holds. Ended tasks are pruned in the end, also such whose end no
owner lived to tell: of each that is not there any more, the store must remember that it ended. Knows nothing
of processes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from skerry.clock import Instant
from skerry.ids import TaskId
from skerry.messages import Lane, Row, TaskEnded
from skerry.testing import a_task
from task_queue.operations import Enqueue, Enqueued
from task_queue.store import Store, TaskFilter, TaskRecord
from task_queue.task import FINAL, State
from task_queue.testing import check_invariants
from tests.chaos.queue_owner import content_of


class Promises:
    """The facts, and the violations found so far."""

    def __init__(self) -> None:
        """Begin with an empty queue."""
        self.violations: list[str] = []
        self.accepted = self.done = self.reported = 0
        self._open: set[str] = set()
        self._ended: dict[str, tuple[State, str] | None] = {}
        self._gone: set[str] = set()  # had ended, and their records were pruned: ids and keys are still known
        self._keys: dict[str, str] = {}
        self._fences: dict[str, list[str]] = {}
        self._reports: dict[int, str] = {}
        self._reported: set[str] = set()
        self._delivered = 0
        self._mark = 0

    def hear(self, line: str) -> None:
        """Take one fact."""
        word, *facts = line.split(" ")
        match word:
            case "a":
                self._hear_accepted(*facts)
            case "k":
                self._hear_known(*facts)
            case "s":
                self._hear_started(*facts)
            case "d":
                self._hear_done(*facts)
            case "r":
                self._hear_report(int(facts[0]), facts[1])
            case "m":
                self._mark = int(facts[0])
            case "o":
                pass
            case _:
                self._violation(f"the owner ended by itself: {line}")

    def _violation(self, text: str) -> None:
        self.violations.append(text)

    def _hear_accepted(self, task_id: str, key: str) -> None:
        self._hear_known(task_id, key)
        if task_id not in self._open | self._ended.keys() | self._gone:
            self.accepted += 1
            self._open.add(task_id)

    def _hear_known(self, task_id: str, key: str) -> None:
        """A key names one task, ended or not: as long as a bout lives it is remembered."""
        if key != "-" and self._keys.setdefault(key, task_id) != task_id:
            self._violation(f"key {key} names {self._keys[key]} and {task_id}")

    def _hear_started(self, task_id: str, fence: str, once: str) -> None:
        fences = self._fences.setdefault(task_id, [])
        if fence in fences:
            self._violation(f"{task_id} ran twice under {fence}")
        if fences and once == "1":
            self._violation(f"{task_id} may run once only and ran under {fences} and {fence}")
        if self._ended.get(task_id) or task_id in self._gone:
            self._violation(f"{task_id} had ended and ran again")
        fences.append(fence)

    def _hear_done(self, task_id: str, fence: str) -> None:
        if self._ended.get(task_id):
            self._violation(f"{task_id} was finished twice")
        self.done += 1
        self._open.discard(task_id)
        self._ended[task_id] = (State.DONE, fence)

    def _hear_report(self, seq: int, task_id: str) -> None:
        if self._reports.get(seq, task_id) != task_id:
            self._violation(f"report {seq} spoke of {self._reports[seq]} and now of {task_id}")
        elif seq > self._delivered + 1:
            self._violation(f"after report {self._delivered} came {seq}")
        elif seq == self._delivered + 1:
            if task_id in self._reported:
                self._violation(f"the end of {task_id} was reported twice")
            self._delivered, self._reports[seq] = seq, task_id
            self._reported.add(task_id)
            self.reported += 1

    def compare(self, store: Store, now: Instant, *, with_invariants: bool) -> None:
        """Hold the store against every fact, task by task.  now: of the store's clock."""
        records = {record.task_id: record for record in store.find(TaskFilter(limit=1_000_000))}
        rows = store.outbox(Lane.BACKLOG, self._delivered, limit=1_000_000, limit_bytes=1 << 30)
        self._look_for(store, now, (self._open | self._ended.keys()) - set(records))
        for record in records.values():
            self._compare_one(record)
        self._compare_reports(records, rows)
        if store.inbox_mark("cloud", "e", Lane.CONTROL) < self._mark:
            self._violation(f"the inbox was marked up to {self._mark} and is not")
        if with_invariants:
            check_invariants(store)
        self._forget(set(records))

    def _look_for(self, store: Store, now: Instant, missing: set[str]) -> None:
        """Ask for each missing task once more: the store recognises one that had ended, and no lost one."""
        asked = sorted(TaskId(task_id) for task_id in missing)
        answers = store.apply([Enqueue(task_id=each, task=a_task()) for each in asked], now=now)
        for task_id, answer in zip(asked, answers, strict=True):
            if answer != Enqueued(task_id=task_id, is_new=False):
                self._violation(f"{task_id} was accepted and is lost")
        self._open -= missing
        self._gone |= missing

    def _compare_one(self, record: TaskRecord) -> None:
        task_id, now = record.task_id, (record.state, str(record.fence))
        text = record.task.spec.argv[1]  # type: ignore[union-attr]  # every task here is a command
        if text != content_of(task_id, len(text)):
            self._violation(f"{task_id} carries something else: {text[:40]}")
        then = self._ended.get(task_id)
        if then is not None and now != then:
            self._violation(f"{task_id} had ended as {then} and is {now}")
        self._open.discard(task_id)
        if record.state in FINAL:
            self._ended[task_id] = now
        else:
            self._open.add(task_id)

    def _compare_reports(self, records: Mapping[TaskId, TaskRecord], rows: Sequence[Row]) -> None:
        waiting = [TaskId(msgspec.json.decode(row.body, type=TaskEnded).task_id) for row in rows]
        if len(set(waiting)) != len(waiting) or self._reported & set(waiting):
            self._violation("an end is reported twice")
        ended = {task_id for task_id, record in records.items() if record.state in FINAL}
        for task_id in ended - self._reported - set(waiting):
            self._violation(f"the end of {task_id} is not reported")
        for task_id in (set(waiting) & set(records)) - ended:
            self._violation(f"the end of {task_id} is reported, and it has not ended")

    def _forget(self, kept: set[str]) -> None:
        """Drop what the store has pruned."""
        self._ended = {task_id: end for task_id, end in self._ended.items() if task_id in kept}
        self._fences = {task_id: fences for task_id, fences in self._fences.items() if task_id in kept}
        recent = {seq: task_id for seq, task_id in self._reports.items() if seq > self._delivered - 2000}
        self._reports = recent
        self._reported = {task_id for task_id in self._reported if task_id in kept} | set(recent.values())
