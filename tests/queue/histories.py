"""Random work for a queue: every operation it knows, in the shares and with the states that make it matter.

A history proposes operations from what it has seen of earlier answers; the caller commits them. It knows
nothing of files, cuts or kills.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from skerry.clock import WALL_FLOOR_S
from skerry.decision import Decision
from skerry.fence import Fence
from skerry.ids import TaskId, TaskIdSource
from skerry.messages import Lane, Outcome
from skerry.recurring import RecurringSpec
from skerry.testing import ManualClock, a_task
from task_queue.operations import (
    Advance,
    Answer,
    AppendOutbox,
    Cancel,
    Changed,
    Claim,
    Claimed,
    CountLoss,
    Drop,
    DropRecurring,
    Enqueue,
    Enqueued,
    Fail,
    Finish,
    HandOver,
    MarkInbox,
    OfferAgain,
    Operation,
    Park,
    PutMeta,
    PutRecurring,
    RecordPlacement,
    RefusePlacement,
    Release,
    RenewPlacements,
    Replay,
    Return,
    Start,
    Started,
    TrimOutbox,
)
from task_queue.testing import FAILED, SUCCEEDED

_REMEMBERED = 200
#: Documents that fit a page, and that do not.
_SIZES = (0, 0, 400, 6000)


class History:
    """What has been asked of a store so far, and what to ask next."""

    def __init__(self, clock: ManualClock, rng: random.Random, *, with_recurring: bool = True) -> None:
        """Begin with an empty queue.  with_recurring: their tasks' ids tell the wall time."""
        self._recipes = {
            recipe: share for recipe, share in _RECIPES.items() if with_recurring or recipe != History._recur
        }
        self.clock, self.rng = clock, rng
        self.performed: Counter[type[Operation]] = Counter()
        # Not the clock's wall time: the same history under another clock has the same ids.
        self._ids = TaskIdSource(lambda: WALL_FLOOR_S, random_bits=rng.getrandbits)
        self._known: list[TaskId] = []
        self._claimed: dict[TaskId, bool] = {}  #: with whether it was placed here
        self._running: dict[TaskId, Fence] = {}
        self._appended: dict[Lane, int] = dict.fromkeys(Lane, 0)
        self._marks: Counter[tuple[str, Lane]] = Counter()
        self._placements = 0

    def propose(self) -> list[Operation]:
        """Return operations for one commit: mostly of one kind, at times a mixture."""
        recipes = self.rng.choices(
            list(self._recipes), weights=list(self._recipes.values()), k=self.rng.choice((1, 1, 3))
        )
        ops = [op for recipe in recipes for op in recipe(self)]
        self.performed.update(type(op) for op in ops)
        return ops

    def hear(self, answers: Sequence[Answer]) -> None:
        """Learn from the answers of a commit."""
        for answer in answers:
            match answer:
                case Enqueued(task_id=task_id):
                    self._known = [*self._known[-_REMEMBERED:], task_id]
                case Claimed(tasks=tasks):
                    self._claimed.update((task.task_id, task.placement is not None) for task in tasks)
                case Started(task_id=task_id, fence=fence):
                    self._claimed.pop(task_id, None)
                    self._running[task_id] = fence
                case Changed(task_id=task_id):
                    self._claimed.pop(task_id, None)
                    self._running.pop(task_id, None)
                case _:
                    pass

    def restarted(self) -> None:
        """Forget what a process keeps in memory."""
        self._claimed.clear()
        self._running.clear()

    def _placement(self) -> Fence:
        self._placements += 1
        return Fence((1, self._placements))

    def _task(self) -> Any:
        rng = self.rng
        return a_task(
            ("echo", "x" * rng.choice(_SIZES)),
            priority=rng.randint(0, 9),
            retries=rng.choice((0, 2, 50)),
            effect=rng.choice(("idempotent", "idempotent", "at_most_once")),
            ordering_key=rng.choice((None, None, "a", "b")),
            idempotency_key=rng.choice((None, None, None, f"r{rng.randint(0, 99)}")),
            delay_s=rng.choice((None, None, 5.0)),
            expires_after_s=rng.choice((None, None, 60.0)),
        )

    def _enqueue(self) -> list[Operation]:
        return [
            Enqueue(task_id=self._ids.next(), task=self._task(), wall_s=self.clock.wall_s())
            for _ in range(self.rng.choice((1, 1, 1, 12)))
        ]

    def _place(self) -> list[Operation]:
        again = self._known and self.rng.random() < 0.3
        task_id = self.rng.choice(self._known) if again else self._ids.next()
        return [Enqueue(task_id=task_id, task=self._task(), placement=self._placement(), lease_s=30.0)]

    def _claim(self) -> list[Operation]:
        return [Claim(limit=self.rng.randint(1, 6))]

    def _start(self) -> list[Operation]:
        decided = Decision(task_id="", decided_by="baseline:fifo", wall_s=self.clock.wall_s())
        return [
            Start(task_id=task_id, device="cpu0", decision=decided) for task_id in self._some(self._claimed)
        ]

    def _finish(self) -> list[Operation]:
        return [
            Finish(task_id=task_id, fence=self._running[task_id], outcome=SUCCEEDED)
            for task_id in self._some(self._running)
        ]

    def _fail(self) -> list[Operation]:
        return [
            Fail(
                task_id=task_id,
                fence=self._running[task_id],
                outcome=FAILED,
                retry_after_s=self.rng.choice((0.0, 8.0)),
                may_retry=self.rng.random() < 0.8,
                counts=self.rng.random() < 0.8,
            )
            for task_id in self._some(self._running)
        ]

    def _leave(self) -> list[Operation]:
        ops: list[Operation] = []
        for task_id in self._some(self._claimed):
            decided = Decision(task_id=task_id, decided_by="baseline:fifo")
            away: list[Operation] = (
                [RefusePlacement(task_id=task_id, reason="r")]
                if self._claimed[task_id]
                else [
                    HandOver(task_id=task_id, reason="r", decision=decided),
                    Park(task_id=task_id, reason="r"),
                ]
            )
            ops.append(self.rng.choice([Release(task_id=task_id), *away, *away]))
        return ops

    def _from_outside(self) -> list[Operation]:
        if not self._known:
            return []
        task_id = self.rng.choice(self._known)
        fence = Fence((1, self._placements + 1), 1)
        decided = Decision(task_id=task_id, decided_by="coordinator:greedy")
        return [
            self.rng.choice(
                [
                    Cancel(task_id=task_id),
                    Replay(task_id=task_id),
                    Drop(task_id=task_id, fence=fence),
                    RecordPlacement(task_id=task_id, fence=fence, node="n", decision=decided),
                    OfferAgain(task_id=task_id),
                    Return(task_id=task_id, fence=fence, outcome=Outcome(status="succeeded")),
                ]
            )
        ]

    def _pass_time(self) -> list[Operation]:
        self.clock.advance(self.rng.choice((0.5, 6.0, 40.0)))
        return [RenewPlacements(lease_s=20.0), Advance()] if self.rng.random() < 0.5 else [Advance()]

    def _use_streams(self) -> list[Operation]:
        lane, source = self.rng.choice(list(Lane)), self.rng.choice(("c1", "c2"))
        self._appended[lane] += 1
        self._marks[source, lane] += self.rng.randint(1, 5)
        coalesce = self.rng.choice(("", "", "state"))
        ops: list[Operation] = [
            AppendOutbox(lane=lane, kind="k", body=b"1" * self.rng.choice((1, 900)), coalesce=coalesce),
            MarkInbox(source=source, epoch="e", lane=lane, upto=self._marks[source, lane]),
            TrimOutbox(lane=lane, upto=self.rng.randint(0, self._appended[lane])),
            PutMeta(name=self.rng.choice("abc"), value={"n": self.rng.randint(0, 999)}),
        ]
        return self.rng.sample(ops, self.rng.randint(1, len(ops)))

    def _recur(self) -> list[Operation]:
        name = self.rng.choice(("hourly", "often", "seldom"))
        every_s = self.rng.choice((5.0, 30.0, 3600.0))
        missed = self.rng.choice(("skip", "all"))
        spec = RecurringSpec(name=name, task=a_task(), every_s=every_s, missed=missed)
        return [
            self.rng.choice(
                (
                    PutRecurring(recurring_id=self._ids.next(), spec=spec),
                    PutRecurring(recurring_id=self._ids.next(), spec=spec),
                    DropRecurring(name=name),
                    CountLoss(lost_class="command", reason="malformed", size_bytes=self.rng.randint(1, 99)),
                )
            )
        ]

    def _some(self, candidates: dict[TaskId, Any]) -> list[TaskId]:
        return self.rng.sample(list(candidates), min(len(candidates), self.rng.randint(1, 6)))


_RECIPES: dict[Callable[[History], list[Operation]], int] = {
    History._enqueue: 4,
    History._place: 2,
    History._claim: 3,
    History._start: 4,
    History._finish: 3,
    History._fail: 1,
    History._leave: 1,
    History._from_outside: 2,
    History._pass_time: 2,
    History._use_streams: 2,
    History._recur: 1,
}
