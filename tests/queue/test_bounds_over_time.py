"""What bounds mean over days: producers above the drain, fills and drains, bursts, a reader that stays."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from skerry.errors import StorageFailed
from skerry.ids import TaskId
from skerry.messages import Lane
from skerry.testing import a_task
from task_queue import sqlite_file
from task_queue.limits import MIB, Limits
from task_queue.operations import (
    Advance,
    Appended,
    AppendOutbox,
    Dropped,
    Enqueue,
    Enqueued,
    Finish,
    Operation,
    Refused,
    Start,
    Started,
    TrimOutbox,
)
from task_queue.retention import RowClass
from task_queue.task import State
from task_queue.testing import SUCCEEDED, QueueDriver, check_invariants, sqlite_opener
from task_queue.watermarks import Level
from task_queue.writer import StoreWriter

CAP = 4 * MIB
#: The log is written into the file at 1 MiB here; a commit of these tests adds less than another.
LIMITS = Limits(
    max_bytes=CAP,
    ballast_bytes=2 * MIB,
    control_ballast_bytes=0,
    free_floor_bytes=0,
    max_log_bytes=4 * MIB,
    keep_ended=100,
    remember_ended=0,
    remember_s=300,
)
TELEMETRY = "decision.recorded"


@pytest.fixture
def q(tmp_path: Path) -> Iterator[QueueDriver]:
    """A queue of 4 MiB on this test's disk."""
    driver = QueueDriver(sqlite_opener(tmp_path), limits=LIMITS)
    yield driver
    check_invariants(driver.store)
    driver.store.close()


def a_submission(q: QueueDriver, **fields: object) -> Enqueue:
    return Enqueue(task_id=q.ids.next(), task=a_task(("echo", "x" * 200), **fields))  # type: ignore[arg-type]


def an_event(size: int = 200) -> AppendOutbox:
    return AppendOutbox(lane=Lane.BACKLOG, kind=TELEMETRY, body=b"1" * size)


def sizes(folder: Path) -> tuple[int, int]:
    """Return the sizes of the database and of its write-ahead log."""
    return (folder / "queue.db").stat().st_size, (folder / "queue.db-wal").stat().st_size


def run(q: QueueDriver, claimed: list[TaskId]) -> int:
    """Run what was claimed to its end, in two commits, and return how many there were."""
    started = [
        a
        for a in q.apply(*(Start(task_id=each, device="cpu0") for each in claimed))
        if isinstance(a, Started)
    ]
    q.apply(*(Finish(task_id=a.task_id, fence=a.fence, outcome=SUCCEEDED) for a in started))
    return len(started)


def drain(q: QueueDriver, window: int = 200) -> int:
    """Run everything to its end while time passes, as it does in an agent that no coordinator answers."""
    ended = 0
    while claimed := q.claim(window):
        ended += run(q, claimed)
        q.clock.advance(1)
    return ended


def told_of(q: QueueDriver, reason: str) -> int:
    return sum(loss.rows for loss in q.store.losses() if loss.reason == reason)


def test_ten_times_the_drain_rate_for_72_hours_never_exceeds_the_cap(q: QueueDriver, tmp_path: Path) -> None:
    step_s, produced, drained = 2400.0, 800, 80
    accepted = ended = events = 0
    largest = [0, 0]
    for _ in range(int(72 * 3600 / step_s)):
        q.clock.advance(step_s)
        submissions: list[Operation] = [a_submission(q) for _ in range(produced // 2)]
        answers = q.apply(*submissions, *(an_event() for _ in range(produced // 2)))
        accepted += sum(isinstance(answer, Enqueued) for answer in answers)
        events += produced // 2
        ended += run(q, q.claim(drained // 2))
        rows = q.store.outbox(Lane.BACKLOG, 0, limit=drained, limit_bytes=1 << 20)
        if rows:
            q.store.note_sent(Lane.BACKLOG, rows[-1].seq)
            events_sent = sum(row.kind == TELEMETRY for row in rows)
            events -= events_sent
            q.one(TrimOutbox(lane=Lane.BACKLOG, upto=rows[-1].seq))
        q.one(Advance())
        largest = [max(pair) for pair in zip(largest, sizes(tmp_path), strict=True)]

    depth = q.store.depth()
    assert largest[0] <= CAP
    assert largest[1] <= LIMITS.max_log_bytes
    assert accepted - ended == depth.by_state[State.READY]
    assert depth.level >= Level.SLOWED
    missing = events - depth.by_class[RowClass.TELEMETRY].rows
    assert missing == sum(loss.rows for loss in q.store.losses() if loss.lost_class == RowClass.TELEMETRY)


def test_a_hundred_rounds_of_filling_and_draining_with_mixed_expiry_leave_the_file_as_it_was(
    q: QueueDriver, tmp_path: Path
) -> None:
    after: list[int] = []
    logs: list[int] = []
    for number in range(100):
        # The oldest never expires and is at the head of the queue: it must not hold up those behind it.
        q.apply(
            *(
                a_submission(q, expires_after_s=(None, 5.0, 60.0)[n % 3], priority=9 - n % 10)
                for n in range(90)
            )
        )
        q.apply(*(an_event() for _ in range(100)))
        q.clock.advance(10)
        short_lived = q.one(Advance())
        assert len(short_lived.expired) == 30, f"round {number}"  # type: ignore[union-attr]
        q.drain()
        q.clock.advance(60)
        q.apply(Advance(), *(TrimOutbox(lane=lane, upto=1 << 40) for lane in Lane))
        if number % 2:
            q.store.tidy()
        file, log = sizes(tmp_path)
        after.append(file)
        logs.append(log)

    assert told_of(q, "expired") == 3000
    assert max(after[3:]) <= max(after[:3]) * 1.2, after
    assert max(after[-10:]) <= max(after[3:13]), after
    assert max(logs) <= 2 * LIMITS.checkpoint_bytes


def test_a_drained_queue_gives_its_space_back_when_it_is_idle(q: QueueDriver, tmp_path: Path) -> None:
    while all(isinstance(answer, Enqueued) for answer in q.apply(*(a_submission(q) for _ in range(50)))):
        pass
    full, _ = sizes(tmp_path)
    drain(q)
    for _ in range(20):
        q.apply(Advance(), *(TrimOutbox(lane=lane, upto=1 << 40) for lane in Lane))
        q.clock.advance(40 * 86400)
    q.store.tidy()

    left, log = sizes(tmp_path)
    assert left < full // 4
    assert log == 0


def test_a_burst_of_events_leaves_the_agent_healthy_and_counts_what_is_missing(q: QueueDriver) -> None:
    waiting = q.enqueue()
    count = 60_000  # a million in docs/reference/queue-limits.md
    writer = StoreWriter(q.store, q.clock)
    futures = [writer.submit([an_event() for _ in range(100)]) for _ in range(count // 100)]
    answers = [answer for future in futures for answer in future.result(120)]
    writer.close()

    kept = q.store.depth().by_class[RowClass.TELEMETRY].rows
    missing = count - kept
    assert answers.count(Dropped()) + told_of(q, "evicted") == missing > count // 2
    assert told_of(q, "evicted") + told_of(q, "sampled") + told_of(q, "refused") == missing
    assert isinstance(q.one(a_submission(q, priority=9)), Enqueued)
    q.drain()
    assert q.state(waiting) is State.DONE
    q.one(TrimOutbox(lane=Lane.BACKLOG, upto=1 << 40))
    for _ in range(20):
        q.one(Advance())
    assert q.store.depth().level is Level.FREE
    assert isinstance(q.one(an_event()), Appended)


def test_a_reader_that_stays_cannot_make_the_log_grow_without_end_and_all_is_well_when_it_ends(
    q: QueueDriver, tmp_path: Path
) -> None:
    q.enqueue()
    reader = sqlite_file.open_reader(tmp_path / "queue.db")
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM task").fetchall()

    answers = []
    for _ in range(1500):
        q.clock.advance(1)
        answers.append(q.one(a_submission(q)))
    refused = next(answer for answer in answers if isinstance(answer, Refused))
    reports = append_reports_until_refused(q)
    at_most = sizes(tmp_path)[1]
    control = [q.one(AppendOutbox(lane=Lane.CONTROL, kind="k", body=b"1")) for _ in range(20)]
    reader.close()
    q.clock.advance(1)
    healed = q.one(a_submission(q))

    assert "reads the database in one long transaction" in refused.message
    assert reports < 500
    assert at_most <= LIMITS.max_log_bytes + 256 * 1024, "the bound, and the commit that reached it"
    assert all(isinstance(answer, Appended) for answer in control)
    assert isinstance(healed, Enqueued)
    assert sizes(tmp_path)[1] < MIB


def append_reports_until_refused(q: QueueDriver) -> int:
    for count in range(5000):
        try:
            q.one(AppendOutbox(lane=Lane.BACKLOG, kind="task.ended", body=b"1" * 2000))
        except StorageFailed:
            return count
    raise AssertionError("the log grew without end")


def test_a_cap_that_is_lowered_below_what_the_file_holds_refuses_until_it_is_drained(tmp_path: Path) -> None:
    q = QueueDriver(sqlite_opener(tmp_path), limits=LIMITS)
    for _ in range(12):
        q.apply(*(a_submission(q) for _ in range(200)))
    accepted = q.store.depth().by_state[State.READY]
    q.store.close()

    q = QueueDriver(sqlite_opener(tmp_path), q.clock, limits=Limits(max_bytes=MIB, ballast_bytes=0))
    refused = q.one(a_submission(q, priority=9))
    drained = drain(q, 50)

    assert isinstance(refused, Refused)
    assert drained == accepted
    check_invariants(q.store)
    q.store.close()
