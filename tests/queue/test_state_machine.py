"""Random histories, with kills, reboots, power cuts, on both stores: they agree, and the laws hold in each.

The SQLite store works on a disk that remembers what was not synced: after a power cut it opens what such a
disk may hold, while the memory store has it all.
"""

from __future__ import annotations

import random
from typing import Any

import hypothesis.strategies as st
from hypothesis import HealthCheck, settings
from hypothesis.stateful import invariant, precondition, rule

from skerry.decision import Decision
from skerry.fence import Fence
from skerry.messages import Lane, Outcome
from skerry.recurring import RecurringSpec
from skerry.testing import a_task
from task_queue.limits import Limits
from task_queue.operations import (
    Advance,
    Advanced,
    AppendOutbox,
    Cancel,
    Changed,
    CountLoss,
    Drop,
    DropRecurring,
    Enqueue,
    Enqueued,
    Fail,
    Finish,
    MarkInbox,
    OfferAgain,
    Operation,
    PutMeta,
    PutRecurring,
    RecordPlacement,
    RenewPlacements,
    Replay,
    Return,
    TrimOutbox,
)
from task_queue.task import FINAL, State
from task_queue.testing import FAILED, SUCCEEDED
from tests.chaos.power_cuts import fresh_folder
from tests.queue.queue_model import QueueModel

LEAVING = st.sampled_from(["release", "park", "hand_over", "refuse"])


class QueueMachine(QueueModel):
    """What may happen to a queue, and what must hold after each step."""

    # --- the door -------------------------------------------------------------------------------------

    @rule(
        key=st.sampled_from([None, "a", "b"]),
        priority=st.integers(0, 9),
        retries=st.integers(0, 2),
        effect=st.sampled_from(["idempotent", "idempotent", "at_most_once"]),
        delay_s=st.sampled_from([None, None, 5.0, 20.0]),
        expires_after_s=st.sampled_from([None, None, 30.0]),
        lease_s=st.sampled_from([None, None, 15.0]),
        request=st.sampled_from([None, None, "r1", "r2"]),
    )
    def enqueue(self, key: str | None, request: str | None, lease_s: float | None, **fields: Any) -> None:
        task_id = self.ids.next()
        task = a_task(ordering_key=key, idempotency_key=request, **fields)
        placement = self.next_placement() if lease_s else None
        answer = self.one(Enqueue(task_id=task_id, task=task, placement=placement, lease_s=lease_s))
        assert isinstance(answer, Enqueued)
        assert answer.is_new == (answer.task_id == task_id)
        if answer.is_new:
            self.accepted.append(task_id)
            if key is not None:
                self.keys[task_id] = key
                self.order.setdefault(key, []).append(task_id)

    @precondition(lambda self: self.accepted)
    @rule(data=st.data(), is_new=st.booleans())
    def place_again(self, data: st.DataObject, is_new: bool) -> None:
        task_id = data.draw(st.sampled_from(self.accepted))
        before = self.state(task_id)
        fence = self.next_placement() if is_new else Fence((1, 1))
        record = self.stores[0].get(task_id)
        assert record is not None
        answer = self.one(Enqueue(task_id=task_id, task=record.task, placement=fence, lease_s=15.0))
        if isinstance(answer, Enqueued):
            self.known[task_id] = max(fence, self.known.get(task_id, fence), key=lambda each: each.path)
        if before in FINAL and isinstance(answer, Enqueued) and answer.is_new:
            assert before in (State.DEAD, State.CANCELLED)
            self.to_the_back(task_id)

    # --- the window -----------------------------------------------------------------------------------

    @rule(limit=st.integers(0, 3))
    def claim(self, limit: int) -> None:
        self.claim_some(limit)

    @rule(limit=st.integers(1, 4))
    def claim_and_start(self, limit: int) -> None:
        self.start_some(limit)

    @precondition(lambda self: self.claimed)
    @rule(data=st.data())
    def start(self, data: st.DataObject) -> None:
        self.start_one(data.draw(st.sampled_from(sorted(self.claimed))))

    @precondition(lambda self: self.running)
    @rule(counts=st.booleans())
    def fail_and_start_again_what_is_running(self, counts: bool) -> None:
        for task_id, fence in list(self.running.items()):
            self.left(self.one(Fail(task_id=task_id, fence=fence, outcome=FAILED, counts=counts)))
        self.start_some(4)
        self.end_all_stale()

    @precondition(lambda self: self.claimed)
    @rule(data=st.data(), how=LEAVING)
    def leave_the_window(self, data: st.DataObject, how: str) -> None:
        self.leave(data.draw(st.sampled_from(sorted(self.claimed))), how)

    @rule(limit=st.integers(1, 4), how=LEAVING)
    def claim_and_leave(self, limit: int, how: str) -> None:
        for task_id in self.claim_some(limit):
            self.leave(task_id, how)

    # --- ends -----------------------------------------------------------------------------------------

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def finish(self, data: st.DataObject) -> None:
        task_id = data.draw(st.sampled_from(sorted(self.running)))
        answer = self.one(Finish(task_id=task_id, fence=self.running[task_id], outcome=SUCCEEDED))
        assert answer == Changed(task_id=task_id, state=State.DONE, was=State.RUNNING)
        assert task_id not in self.succeeded, "two effects of one task"
        self.succeeded.add(task_id)
        self.left(answer)

    @precondition(lambda self: self.running)
    @rule(data=st.data(), counts=st.booleans(), may_retry=st.booleans(), later=st.sampled_from([0.0, 8.0]))
    def fail(self, data: st.DataObject, later: float, **fields: bool) -> None:
        task_id = data.draw(st.sampled_from(sorted(self.running)))
        op = Fail(task_id=task_id, fence=self.running[task_id], outcome=FAILED, retry_after_s=later, **fields)
        answer = self.one(op)
        assert isinstance(answer, Changed)
        self.left(answer)

    @rule()
    def end_under_every_stale_fence(self) -> None:
        self.end_all_stale()

    @precondition(lambda self: self.accepted)
    @rule(
        data=st.data(), how=st.sampled_from(["cancel", "replay", "drop", "record", "return", "offer again"])
    )
    def act_from_outside(self, data: st.DataObject, how: str) -> None:
        task_id = data.draw(st.sampled_from(self.accepted))
        fence = Fence((1, data.draw(st.integers(1, self.placements + 1))), 1)
        decision = Decision(task_id=task_id, decided_by="coordinator:greedy", wall_s=0.0)
        ops: dict[str, Operation] = {
            "cancel": Cancel(task_id=task_id),
            "replay": Replay(task_id=task_id),
            "drop": Drop(task_id=task_id, fence=fence),
            "record": RecordPlacement(task_id=task_id, fence=fence, node="n", decision=decision),
            "offer again": OfferAgain(task_id=task_id),
            "return": Return(task_id=task_id, fence=fence, outcome=Outcome(status="failed")),
        }
        before = self.state(task_id)
        answer = self.one(ops[how])
        self.left(answer)
        if how in ("record", "return", "drop") and isinstance(answer, Changed) and before not in FINAL:
            known = self.known.get(task_id, fence)
            assert known.path <= fence.path, "an older placement had its way"
            self.known[task_id] = fence
        if how == "replay" and isinstance(answer, Changed):
            self.to_the_back(task_id)

    @precondition(lambda self: self.away())
    @rule(data=st.data(), first=st.integers(1, 3), second=st.integers(1, 3))
    def hear_of_two_placements(self, data: st.DataObject, first: int, second: int) -> None:
        task_id = data.draw(st.sampled_from(self.away()))
        decision = Decision(task_id=task_id, decided_by="coordinator:greedy")
        base = self.known.get(task_id, Fence((1, 0))).path[1]
        self.placements = max(self.placements, base + 3)
        for number in (first, second):
            fence = Fence((1, base + number))
            answer = self.one(RecordPlacement(task_id=task_id, fence=fence, node="n", decision=decision))
            known = self.known.get(task_id, fence)
            assert isinstance(answer, Changed) == (known.path <= fence.path)
            self.known[task_id] = max(fence, known)

    # --- time and trouble -----------------------------------------------------------------------------

    @rule(seconds=st.sampled_from([0.0, 3.0, 10.0, 40.0]), renew=st.booleans())
    def pass_time(self, seconds: float, renew: bool) -> None:
        self.clock.advance(seconds)
        answers = self.do(*([RenewPlacements(lease_s=20.0)] if renew else []), Advance())
        advanced = answers[-1]
        assert isinstance(advanced, Advanced)
        self.accepted += advanced.fired
        for task_id, was in advanced.given_up:
            assert (was, self.state(task_id)) == (State.HANDED_OVER, State.UNKNOWN)
        for task_id, _ in (*advanced.expired, *advanced.dropped):
            self.claimed.discard(task_id)
            self.running.pop(task_id, None)

    @precondition(lambda self: self.away())
    @rule()
    def wait_for_word_in_vain(self) -> None:
        away = self.away()
        self.pass_time(Limits().await_word_s + 30.0, renew=False)
        for task_id in away:
            record = self.stores[0].get(task_id)
            assert record is not None
            has_term = record.task.expires_after_s is not None
            assert (record.state in FINAL) == has_term, (
                "a task with a term waits for ever, or one without ended"
            )

    @rule(seconds=st.sampled_from([-3600.0, 86400.0, 6e8]))
    def step_the_wall_clock(self, seconds: float) -> None:
        before = self.stores[0].depth().by_state
        self.clock.step_wall(seconds)
        self.one(Advance())
        after = self.stores[0].depth().by_state
        assert after[State.EXPIRED] == before[State.EXPIRED]

    @rule(lane=st.sampled_from(list(Lane)), upto=st.integers(0, 5), coalesce=st.sampled_from(["", "c"]))
    def use_the_outbox(self, lane: Lane, upto: int, coalesce: str) -> None:
        self.do(
            AppendOutbox(lane=lane, kind="k", body=b"1", coalesce=coalesce), TrimOutbox(lane=lane, upto=upto)
        )
        sqlite, memory = (store.outbox(lane, 0, limit=50, limit_bytes=500) for store in self.stores)
        assert [(row.seq, row.kind) for row in sqlite] == [(row.seq, row.kind) for row in memory]

    @rule(lane=st.sampled_from(list(Lane)), upto=st.integers(0, 9), value=st.integers(0, 99))
    def mark_and_remember(self, lane: Lane, upto: int, value: int) -> None:
        self.marks[lane] = max(upto, self.marks[lane])
        self.do(
            MarkInbox(source="c", epoch="e", lane=lane, upto=self.marks[lane]),
            PutMeta(name="m", value=value),
            CountLoss(lost_class="command", reason="malformed", size_bytes=value),
        )
        for store in self.stores:
            assert store.meta("m") == value
            assert store.inbox_mark("c", "e", lane) == self.marks[lane]

    @rule(name=st.sampled_from(["a", "b"]), every_s=st.sampled_from([None, 5.0, 60.0]))
    def recur(self, name: str, every_s: float | None) -> None:
        if every_s is None:
            self.one(DropRecurring(name=name))
            return
        spec = RecurringSpec(name=name, task=a_task(), every_s=every_s)
        self.one(PutRecurring(recurring_id=self.ids.next(), spec=spec))

    @rule()
    def tidy_up(self) -> None:
        for store in self.stores:
            store.tidy()

    @rule(how=st.sampled_from(["kill", "reboot", "power cut", "power cut"]), seed=st.integers(0, 999))
    def crash_and_reopen(self, how: str, seed: int) -> None:
        if how != "kill":
            self.clock.reboot(f"boot-{self.stores[0].session + 1}", off_s=5000.0)
        left = self.disk.after_cut(random.Random(seed))
        self.stores[0].close()
        if how == "power cut":
            fresh_folder(self.folder, left)
            self.disk.forget()
        self.stores = [opener(self.clock) for opener in self.openers]
        self.claimed.clear()
        self.running.clear()
        counts = self.stores[0].depth().by_state
        assert counts[State.RUNNING] == counts[State.LEASED] == 0

    # --- the laws -------------------------------------------------------------------------------------

    @invariant()
    def nothing_accepted_is_lost_and_nothing_finished_is_undone(self) -> None:
        states = {task_id: self.state(task_id) for task_id in self.accepted}
        assert all(states[task_id] is State.DONE for task_id in self.succeeded)
        assert {task_id for task_id, state in states.items() if state is State.RUNNING} == set(self.running)
        assert {task_id for task_id, state in states.items() if state is State.LEASED} == self.claimed

    @invariant()
    def both_stores_hold_the_same(self) -> None:
        sqlite, memory = (store.depth() for store in self.stores)
        assert (sqlite.by_state, sqlite.outbox) == (memory.by_state, memory.outbox)


QueueMachine.TestCase.settings = settings(
    max_examples=80,
    stateful_step_count=50,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
TestQueueMachine = QueueMachine.TestCase
