"""The store's contract when room is short: who is refused, what is evicted, and that each loss is counted."""

from __future__ import annotations

from itertools import pairwise

import msgspec
import pytest

from skerry.errors import StorageFailed
from skerry.messages import Lane, LossReported
from skerry.testing import a_task
from task_queue.limits import MIB, Limits
from task_queue.operations import (
    Advance,
    Answer,
    Appended,
    AppendOutbox,
    CountLoss,
    Dropped,
    Enqueue,
    Enqueued,
    Refused,
    TrimOutbox,
)
from task_queue.retention import RowClass
from task_queue.task import State
from task_queue.testing import OpenStore, QueueDriver, check_invariants
from task_queue.watermarks import SHARES, Level, level

LIMITS = Limits(max_bytes=4 * MIB, ballast_bytes=0, control_ballast_bytes=0, free_floor_bytes=0)
TELEMETRY, KEPT = "decision.recorded", "task.ended"


@pytest.fixture
def small(opener: OpenStore) -> QueueDriver:
    """A queue of 4 MiB."""
    return QueueDriver(opener, limits=LIMITS)


def level_of(q: QueueDriver) -> Level:
    return level(q.store.usage(), LIMITS)


def append(
    q: QueueDriver, kind: str, size: int = 1000, *, count: int = 1, lane: Lane = Lane.BACKLOG
) -> list[Answer]:
    return q.apply(*(AppendOutbox(lane=lane, kind=kind, body=b"1" * size) for _ in range(count)))


def fill_to(q: QueueDriver, wanted: Level) -> None:
    """Append reports, which are never refused, until the level holds."""
    while level_of(q) < wanted:
        left = SHARES[wanted] * LIMITS.enqueue_bytes - q.store.usage().used_bytes
        append(q, KEPT, 4000, count=max(2, min(200, int(left // 8200))))


def submit(q: QueueDriver, priority: int = 4) -> Answer:
    return q.one(Enqueue(task_id=q.ids.next(), task=a_task(priority=priority)))


def lost(q: QueueDriver) -> dict[tuple[str, str], int]:
    return {(loss.lost_class, loss.reason): loss.rows for loss in q.store.losses()}


def kept(q: QueueDriver, kind: str) -> list[int]:
    return [
        row.seq
        for lane in Lane
        for row in q.store.outbox(lane, 0, limit=1 << 20, limit_bytes=1 << 40)
        if row.kind == kind
    ]


@pytest.mark.parametrize(
    ("wanted", "accepted"),
    [
        (Level.FREE, range(10)),
        (Level.SAMPLED, range(10)),
        (Level.SLOWED, range(2, 10)),
        (Level.URGENT, range(7, 10)),
        (Level.CLOSED, ()),
    ],
)
def test_the_shorter_room_is_the_higher_must_a_task_s_priority_be(
    small: QueueDriver, wanted: Level, accepted: range
) -> None:
    fill_to(small, wanted)

    answers = [submit(small, priority) for priority in range(10)]

    assert [p for p, answer in enumerate(answers) if isinstance(answer, Enqueued)] == list(accepted)
    for answer in answers:
        if isinstance(answer, Refused):
            assert answer.reason == "full"
            assert answer.retry_after_s is not None
            assert answer.retry_after_s > 0
            assert "priority" in answer.message or "no task is taken in" in answer.message
    check_invariants(small.store)


def test_a_producer_is_slowed_when_room_gets_short_and_an_urgent_one_is_not(small: QueueDriver) -> None:
    before, free = submit(small), small.store.depth()
    fill_to(small, Level.SLOWED)
    append(small, KEPT, 4000, count=20)

    normal, urgent = submit(small, 4), submit(small, 9)

    assert isinstance(before, Enqueued)
    assert before.pause_s == 0
    assert free.shortage == ""
    assert "raise the queue's limit" in small.store.depth().shortage
    assert isinstance(normal, Enqueued)
    assert 0 < normal.pause_s <= 1
    assert isinstance(urgent, Enqueued)
    assert urgent.pause_s == 0


def test_telemetry_is_sampled_and_what_is_missing_is_what_was_counted(small: QueueDriver) -> None:
    fill_to(small, Level.SAMPLED)

    answers = append(small, TELEMETRY, 10, count=800)

    dropped = answers.count(Dropped())
    assert dropped == 700
    assert len(kept(small, TELEMETRY)) == 100
    assert lost(small) == {(RowClass.TELEMETRY, "sampled"): 700}
    assert small.store.losses()[0].size_bytes == 7000
    check_invariants(small.store)


def test_short_of_room_the_oldest_telemetry_leaves_and_nothing_else(small: QueueDriver) -> None:
    append(small, TELEMETRY, 1000, count=1000)
    state = AppendOutbox(lane=Lane.BACKLOG, kind="policy.report", body=b"1" * 1000)
    small.apply(state)
    tasks = [submit(small) for _ in range(20)]
    reports = len(kept(small, KEPT))
    while level_of(small) < Level.URGENT:
        append(small, KEPT, 4000, count=5)
        reports += 5

    small.one(Advance())

    left = kept(small, TELEMETRY)
    gone = 1000 - len(left)
    assert level_of(small) < Level.URGENT
    assert 0 < gone < 1000
    assert left == list(range(gone + 1, 1001)), "the oldest go first"
    assert lost(small) == {(RowClass.TELEMETRY, "evicted"): gone}
    assert len(kept(small, KEPT)) == reports
    assert len(kept(small, "policy.report")) == 1
    assert small.store.depth().by_state[State.READY] == len(tasks) == 20
    assert small.store.depth().by_class[RowClass.TELEMETRY] == (len(left), len(left) * 1000)
    check_invariants(small.store)


def test_telemetry_that_is_on_its_way_is_not_evicted_for_it_may_arrive(small: QueueDriver) -> None:
    append(small, TELEMETRY, 1000, count=1000)
    small.store.note_sent(Lane.BACKLOG, 400)
    fill_to(small, Level.CLOSED)

    small.one(Advance())

    left = kept(small, TELEMETRY)
    assert left[:400] == list(range(1, 401))
    assert len(left) < 1000
    assert lost(small) == {(RowClass.TELEMETRY, "evicted"): 1000 - len(left)}
    check_invariants(small.store)


def test_one_commit_evicts_a_bounded_number_of_rows(small: QueueDriver) -> None:
    append(small, TELEMETRY, 1, count=9000)
    evicted = [0]
    while level_of(small) < Level.CLOSED:
        append(small, KEPT, 4000, count=5)
        evicted.append(lost(small).get((RowClass.TELEMETRY, "evicted"), 0))

    steps = [after - before for before, after in pairwise(evicted)]

    assert 0 < max(steps) <= 2500
    assert evicted[-1] == 9000
    check_invariants(small.store)


def test_a_closed_queue_takes_control_and_ends_what_it_accepted(small: QueueDriver) -> None:
    running, fence = small.run()
    waiting = small.enqueue()
    fill_to(small, Level.CLOSED)

    control = append(small, "task.withdrawn", 500, lane=Lane.CONTROL)
    telemetry = append(small, TELEMETRY)
    refused = submit(small, 9)
    small.finish(running, fence)
    small.drain()

    assert isinstance(control[0], Appended)
    assert telemetry == [Dropped()]
    assert isinstance(refused, Refused)
    assert small.state(running) is small.state(waiting) is State.DONE
    assert lost(small)[RowClass.TELEMETRY, "refused"] == 1
    check_invariants(small.store)


def append_until_refused(q: QueueDriver, size: int = 4000) -> StorageFailed:
    """Append reports until the store keeps the rest of its room for control, and return what it says."""
    fill_to(q, Level.CLOSED)
    for _ in range(10_000):
        try:
            append(q, KEPT, size)
        except StorageFailed as error:
            return error
    raise AssertionError("the store never got full")


def test_reports_stop_before_the_room_that_is_kept_for_control(small: QueueDriver) -> None:
    refused = append_until_refused(small)
    before = len(kept(small, KEPT))

    control = [append(small, "task.withdrawn", 1000, lane=Lane.CONTROL)[0] for _ in range(50)]
    counted = lost(small).get((RowClass.TELEMETRY, "refused"), 0)
    telemetry = append(small, TELEMETRY, 1000, count=3)
    assert telemetry == [Dropped()] * 3, "it is never an error"
    assert lost(small)[RowClass.TELEMETRY, "refused"] == counted + 3
    small.one(TrimOutbox(lane=Lane.BACKLOG, upto=before // 2))
    after = append(small, KEPT, 4000)

    assert "raise the queue's limit" in str(refused)
    assert all(isinstance(answer, Appended) for answer in control)
    assert isinstance(after[0], Appended)
    assert len(kept(small, KEPT)) == before - before // 2 + 1
    check_invariants(small.store)


def test_ended_tasks_that_make_room_are_counted_and_those_that_retention_forgets_are_not(
    opener: OpenStore,
) -> None:
    q = QueueDriver(opener, limits=msgspec.structs.replace(LIMITS, keep_ended=10))
    for _ in range(30):
        q.enqueue(argv=("echo", "x" * 1000))
    q.drain()
    q.clock.advance(1)
    q.one(Advance())
    by_rule = lost(q)
    fill_to(q, Level.SAMPLED)

    q.one(Advance())

    assert by_rule == {}
    assert lost(q) == {("history", "evicted"): 10}
    check_invariants(q.store)


def test_expired_and_dead_lettered_tasks_are_counted_and_cancelled_ones_are_not(q: QueueDriver) -> None:
    for _ in range(3):
        q.enqueue(expires_after_s=5)
    q.one(CountLoss(lost_class="command", reason="not_understood", rows=2, size_bytes=77))
    q.clock.advance(6)
    q.one(Advance())

    assert lost(q) == {("command", "not_understood"): 2, ("task", "expired"): 3}
    assert q.store.depth().by_state[State.EXPIRED] == 3


def reports_of(q: QueueDriver) -> list[LossReported]:
    rows = q.store.outbox(Lane.CONTROL, 0, limit=1000, limit_bytes=1 << 20)
    return [msgspec.json.decode(row.body, type=LossReported) for row in rows if row.kind == "loss.reported"]


def test_losses_are_told_in_the_control_lane_as_running_totals_and_not_more_often_than_every_5_s(
    q: QueueDriver,
) -> None:
    for _ in range(100):
        q.one(CountLoss(lost_class="command", reason="not_understood", rows=1, size_bytes=10))
    (first,) = reports_of(q)
    answer = q.one(Advance())
    q.clock.advance(5)
    q.one(Advance())
    (second,) = reports_of(q)
    q.clock.advance(60)
    q.one(Advance())

    assert (first.count, first.size_bytes, first.is_total) == (1, 10, True)
    assert getattr(answer, "next_due_in_s", None) == pytest.approx(5)
    assert (second.count, second.size_bytes) == (100, 1000)
    assert q.store.depth().written[Lane.CONTROL] == 2, "an unchanged total is not told again"


def test_what_was_told_is_kept_by_class_and_reason(q: QueueDriver) -> None:
    kinds = [("command", "malformed"), ("command", "not_understood"), ("task", "malformed")]
    q.apply(*(CountLoss(lost_class=of, reason=why, rows=n) for n, (of, why) in enumerate(kinds, start=1)))
    q.clock.advance(5)
    q.one(CountLoss(lost_class="task", reason="expired"))

    told = [(report.lost_class, report.reason) for report in reports_of(q)]
    assert told == [*kinds, ("task", "expired")]
    assert q.store.depth().written[Lane.CONTROL] == 4, "an unchanged total is not told again"


def test_the_loss_ledger_survives_a_kill_and_is_told_afterwards(q: QueueDriver) -> None:
    q.one(CountLoss(lost_class="a", reason="b"))
    q.one(CountLoss(lost_class="a", reason="b"))
    q.kill()
    q.clock.advance(6)
    q.one(Advance())

    (report,) = reports_of(q)
    assert (report.count, lost(q)) == (2, {("a", "b"): 2})


def test_a_node_without_a_coordinator_counts_and_tells_nobody(opener: OpenStore) -> None:
    q = QueueDriver(opener, reports=False)

    q.one(CountLoss(lost_class="a", reason="b"))

    assert lost(q) == {("a", "b"): 1}
    assert reports_of(q) == []
    answer = q.one(Advance())
    assert getattr(answer, "next_due_in_s", 0) is None


def test_a_commit_that_fails_loses_nothing_and_counts_nothing(small: QueueDriver) -> None:
    fill_to(small, Level.CLOSED)
    append_until_refused(small, 100_000)
    before, counted = len(kept(small, KEPT)), lost(small)

    with pytest.raises(StorageFailed):
        small.apply(
            AppendOutbox(lane=Lane.BACKLOG, kind=TELEMETRY, body=b"1"),
            AppendOutbox(lane=Lane.BACKLOG, kind=KEPT, body=b"1" * 100_000),
        )

    assert (len(kept(small, KEPT)), lost(small)) == (before, counted)
    check_invariants(small.store)


def test_room_that_comes_back_opens_the_door_without_a_restart(small: QueueDriver) -> None:
    fill_to(small, Level.CLOSED)
    refused = submit(small, 9)

    small.one(TrimOutbox(lane=Lane.BACKLOG, upto=1 << 40))

    assert isinstance(refused, Refused)
    assert level_of(small) is Level.FREE
    assert isinstance(submit(small, 0), Enqueued)
