"""The store's contract, outbox, inbox and named values."""

from __future__ import annotations

from skerry.messages import Lane
from skerry.testing import a_task
from task_queue.operations import (
    Advance,
    Appended,
    AppendOutbox,
    Enqueue,
    MarkInbox,
    Ok,
    PutMeta,
    TrimOutbox,
)
from task_queue.testing import (
    FIRST,
    QueueDriver,
    reason_of,
)


def append(q: QueueDriver, body: bytes, **fields: str) -> int:
    answer = q.one(AppendOutbox(lane=Lane.LIVE, kind="k", body=body, **fields))
    assert isinstance(answer, Appended)
    return answer.seq


def test_each_lane_counts_for_itself_without_gaps_and_over_restarts(q: QueueDriver) -> None:
    live = [append(q, b"1") for _ in range(3)]
    control = q.one(AppendOutbox(lane=Lane.CONTROL, kind="k", body=b"1"))
    q.one(TrimOutbox(lane=Lane.LIVE, upto=3))
    q.kill()

    assert live == [1, 2, 3]
    assert control == Appended(seq=1)
    assert append(q, b"1") == 4


def test_an_outbox_page_is_bounded_by_rows_and_bytes_but_never_empty(q: QueueDriver) -> None:
    for size in (10, 10, 500, 10):
        append(q, b"1" * size)

    def page(after: int, limit: int, limit_bytes: int) -> list[int]:
        return [row.seq for row in q.store.outbox(Lane.LIVE, after, limit=limit, limit_bytes=limit_bytes)]

    assert page(0, 3, 1000) == [1, 2, 3]
    assert page(0, 10, 25) == [1, 2]
    assert page(2, 10, 25) == [3]
    assert page(4, 10, 25) == []


def test_an_acknowledged_row_is_gone_and_an_impossible_acknowledgement_hides_nothing(q: QueueDriver) -> None:
    for _ in range(5):
        append(q, b"1")

    q.one(TrimOutbox(lane=Lane.LIVE, upto=3))
    q.one(TrimOutbox(lane=Lane.LIVE, upto=2))
    left = [row.seq for row in q.store.outbox(Lane.LIVE, 0, limit=10, limit_bytes=1000)]
    q.one(TrimOutbox(lane=Lane.LIVE, upto=999))
    following = append(q, b"1")

    assert left == [4, 5]
    assert [row.seq for row in q.store.outbox(Lane.LIVE, 0, limit=10, limit_bytes=1000)] == [following] == [6]


def test_a_long_acknowledgement_is_worked_off_in_slices(q: QueueDriver) -> None:
    q.apply(*(AppendOutbox(lane=Lane.BACKLOG, kind="k", body=b"1") for _ in range(12_000)))

    q.one(TrimOutbox(lane=Lane.BACKLOG, upto=11_999))

    assert q.store.depth().outbox[Lane.BACKLOG] == 7000
    assert [r.seq for r in q.store.outbox(Lane.BACKLOG, 0, limit=9, limit_bytes=99)] == [12_000]
    q.apply(Advance(), Advance())
    assert q.store.depth().outbox[Lane.BACKLOG] == 1


def test_a_coalesced_row_takes_the_place_of_its_predecessor(q: QueueDriver) -> None:
    append(q, b"1", coalesce="state")
    append(q, b"2", coalesce="other")
    newest = append(q, b"3", coalesce="state")

    rows = q.store.outbox(Lane.LIVE, 0, limit=10, limit_bytes=1000)

    assert newest == 3
    assert [(row.seq, bytes(row.body)) for row in rows] == [(2, b"2"), (3, b"3")]


def test_a_mark_commits_with_the_rows_beside_it_and_never_goes_back(q: QueueDriver) -> None:
    task_id = q.ids.next()
    q.apply(
        Enqueue(task_id=task_id, task=a_task(), placement=FIRST),
        MarkInbox(source="c", epoch="e1", lane=Lane.CONTROL, upto=7),
    )
    q.one(MarkInbox(source="c", epoch="e1", lane=Lane.CONTROL, upto=5))
    q.kill()

    assert q.store.inbox_mark("c", "e1", Lane.CONTROL) == 7
    assert q.store.inbox_mark("c", "e1", Lane.LIVE) == 0
    assert q.store.inbox_mark("c", "e2", Lane.CONTROL) == 0


def test_named_values_are_kept_within_their_limit(q: QueueDriver) -> None:
    kept = q.one(PutMeta(name="term", value={"n": [1, 2]}))
    refused = q.one(PutMeta(name="term", value="x" * 70_000))
    q.kill()

    assert kept == Ok()
    assert reason_of(refused) == "too_large"
    assert q.store.meta("term") == {"n": [1, 2]}
    assert q.store.meta("none") is None
