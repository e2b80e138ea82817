"""The two halves of a stream, one event at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pytest

from skerry.clock import Instant
from skerry.link.actions import Action, Alarm, ApplyRows, ReadRows, Refuse, Send, TrimOutbox
from skerry.link.events import Applied, ApplyFailed, LoadChanged, RowsRead
from skerry.link.receiver import HELD_BATCHES, StreamReceiver
from skerry.link.sender import BATCH_BYTES, BATCH_ROWS, MAX_ROW_BYTES, RESEND_S, WINDOW_BATCHES, StreamSender
from skerry.link.testing import up_row
from skerry.link.wire import UP_ROWS
from skerry.messages import Lane, Row, StreamAck, StreamBatch
from skerry.topics import Leaf

T0 = Instant("boot-1", 1000.0)


def rows(first: int, last: int, *, size: int = 0) -> tuple[Row, ...]:
    kind, body = up_row("x" * size)
    return tuple(Row(seq=seq, kind=kind, body=msgspec.Raw(body)) for seq in range(first, last + 1))


def batches(actions: Sequence[Action]) -> list[StreamBatch]:
    return [msgspec.json.decode(a.body, type=StreamBatch) for a in actions if isinstance(a, Send)]


def acks(actions: Sequence[Action]) -> list[StreamAck]:
    return [msgspec.json.decode(a.body, type=StreamAck) for a in actions if isinstance(a, Send)]


def reads(actions: Sequence[Action], lane: Lane = Lane.LIVE) -> list[ReadRows]:
    return [a for a in actions if isinstance(a, ReadRows) and a.lane == lane]


def an_ack(upto: int, **fields: Any) -> StreamAck:
    return StreamAck(epoch="e", lane=Lane.LIVE, upto=upto, **fields)


def an_open_sender(credit: int = 2000, **marks: int) -> StreamSender:
    sender = StreamSender(Leaf.EVENTS, "e")
    sender.open(marks, credit, T0)
    return sender


# --- sender -------------------------------------------------------------------------------------------------


def test_opening_reads_each_lane_above_what_the_other_side_holds() -> None:
    sender = StreamSender(Leaf.EVENTS, "e")

    actions = sender.open({"live": 7}, 2000, T0)

    assert [(a.lane, a.after) for a in actions if isinstance(a, ReadRows)] == [
        (Lane.CONTROL, 0),
        (Lane.LIVE, 7),
        (Lane.BACKLOG, 0),
    ]
    assert TrimOutbox(Lane.LIVE, 7) in actions


def test_nothing_leaves_the_outbox_before_it_is_acknowledged() -> None:
    sender = an_open_sender()

    sent = sender.rows_read(RowsRead(Lane.LIVE, 0, rows(1, 5)), T0)
    acknowledged = sender.acked(an_ack(3), T0)

    assert not any(isinstance(a, TrimOutbox) for a in sent)
    assert TrimOutbox(Lane.LIVE, 3) in acknowledged


def test_a_window_of_batches_goes_out_and_then_waits() -> None:
    sender = an_open_sender()
    upto = 0
    actions: list[Action] = []
    for _ in range(WINDOW_BATCHES):
        actions = sender.rows_read(RowsRead(Lane.LIVE, upto, rows(upto + 1, upto + BATCH_ROWS)), T0)
        upto += BATCH_ROWS

    assert reads(actions) == []
    assert reads(sender.acked(an_ack(BATCH_ROWS), T0)) == [ReadRows(Lane.LIVE, upto, BATCH_ROWS, BATCH_BYTES)]


def test_credit_bounds_what_is_read() -> None:
    sender = an_open_sender(credit=50)

    assert reads(sender.rows_read(RowsRead(Lane.LIVE, 0, rows(1, 30)), T0))[0].limit == 20
    sender.grew(Lane.LIVE, T0)
    sender.acked(an_ack(30, credit=0), T0)
    probe = reads(sender.rows_read(RowsRead(Lane.LIVE, 30, ()), T0))
    assert probe[0].limit == 1  # so that a receiver that said nothing more cannot stall it


def test_a_batch_is_cut_at_its_bytes_and_a_larger_row_travels_alone() -> None:
    sender = an_open_sender()
    large = rows(1, 3, size=BATCH_BYTES + 1)

    first = batches(sender.rows_read(RowsRead(Lane.LIVE, 0, large), T0))
    second = batches(sender.rows_read(RowsRead(Lane.LIVE, 1, rows(2, 100, size=2000)), T0))

    assert [row.seq for row in first[0].rows] == [1]
    assert second[0].after == 1
    assert 2 <= len(second[0].rows) <= BATCH_BYTES // 2000


def test_a_row_that_fits_no_envelope_is_replaced_by_a_report_of_its_loss() -> None:
    sender = an_open_sender()

    actions = sender.rows_read(RowsRead(Lane.LIVE, 0, rows(1, 1, size=MAX_ROW_BYTES)), T0)

    (batch,) = batches(actions)
    assert batch.rows[0].seq == 1
    assert b"oversized" in bytes(batch.rows[0].body)
    assert any(isinstance(a, Alarm) for a in actions)


def test_silence_makes_it_read_again_from_the_acknowledged_mark() -> None:
    sender = an_open_sender()
    sender.rows_read(RowsRead(Lane.LIVE, 0, rows(1, 5)), T0)
    sender.rows_read(RowsRead(Lane.LIVE, 5, ()), T0)

    assert sender.tick(T0.plus(RESEND_S - 1)) == []
    assert [a.after for a in reads(sender.tick(T0.plus(RESEND_S)))] == [0]


def test_what_was_said_later_and_is_acknowledged_shows_that_a_batch_was_lost() -> None:
    sender = an_open_sender()
    sender.rows_read(RowsRead(Lane.LIVE, 0, rows(1, 5)), T0)
    sender.rows_read(RowsRead(Lane.LIVE, 5, ()), T0)

    assert reads(sender.overtaken(T0, T0.plus(1.0))) == []
    assert [a.after for a in reads(sender.overtaken(T0.plus(1.0), T0.plus(1.1)))] == [0]


def test_a_gap_makes_it_go_back_once_for_all_batches_behind_it() -> None:
    sender = an_open_sender()
    sender.rows_read(RowsRead(Lane.LIVE, 0, rows(1, 5)), T0)
    sender.rows_read(RowsRead(Lane.LIVE, 5, rows(6, 9)), T0)

    first = sender.acked(an_ack(0, is_gap=True), T0.plus(0.1))
    second = sender.acked(an_ack(0, is_gap=True), T0.plus(0.2))

    assert [a.after for a in reads(first)] == [0]
    assert reads(second) == []


def test_retry_after_pauses_the_lane_and_it_resumes_by_itself() -> None:
    sender = an_open_sender()
    sender.rows_read(RowsRead(Lane.LIVE, 0, rows(1, 5)), T0)

    assert reads(sender.acked(an_ack(0, retry_after_s=3600), T0)) == []
    assert reads(sender.tick(T0.plus(3599))) == []
    assert [a.after for a in reads(sender.tick(T0.plus(3600)))] == [0]


def test_a_row_that_came_during_a_read_is_not_forgotten() -> None:
    sender = an_open_sender()

    sender.grew(Lane.LIVE, T0)

    assert reads(sender.rows_read(RowsRead(Lane.LIVE, 0, ()), T0))


def test_an_acknowledgement_of_an_earlier_sending_moves_the_read_forward() -> None:
    sender = an_open_sender()

    actions = sender.acked(an_ack(40), T0)

    assert [a.after for a in reads(actions)] == [40]
    assert batches(sender.rows_read(RowsRead(Lane.LIVE, 0, rows(1, 5)), T0)) == []


@pytest.mark.parametrize("ack", [an_ack(2), msgspec.structs.replace(an_ack(9), epoch="other")])
def test_an_acknowledgement_that_is_old_or_of_another_store_changes_nothing(ack: StreamAck) -> None:
    sender = an_open_sender(live=5)

    assert sender.acked(ack, T0) == []
    assert sender.marks[Lane.LIVE] == 5


def test_a_full_backlog_does_not_hold_live_rows_back() -> None:
    sender = an_open_sender()
    upto = 0
    for _ in range(WINDOW_BATCHES):
        sender.rows_read(RowsRead(Lane.BACKLOG, upto, rows(upto + 1, upto + BATCH_ROWS)), T0)
        upto += BATCH_ROWS

    actions = sender.rows_read(RowsRead(Lane.LIVE, 0, rows(1, 1)), T0)

    assert [batch.lane for batch in batches(actions)] == [Lane.LIVE]


# --- receiver -----------------------------------------------------------------------------------------------


def a_receiver(mark: int = 0) -> StreamReceiver:
    receiver = StreamReceiver(Leaf.ACK, UP_ROWS, lambda epoch, lane: mark)
    receiver.attach("e")
    return receiver


def a_batch(first: int, last: int, *, after: int | None = None) -> StreamBatch:
    return StreamBatch(
        epoch="e", lane=Lane.LIVE, after=first - 1 if after is None else after, rows=rows(first, last)
    )


def applied_rows(actions: Sequence[Action]) -> list[int]:
    return [r.row.seq for a in actions if isinstance(a, ApplyRows) for r in a.rows]


def test_it_acknowledges_after_the_commit_and_not_before() -> None:
    receiver = a_receiver()

    taken = receiver.received(a_batch(1, 3), T0)
    committed = receiver.applied(Applied("e", Lane.LIVE, 3))

    assert applied_rows(taken) == [1, 2, 3]
    assert acks(taken) == []
    assert [ack.upto for ack in acks(committed)] == [3]


def test_rows_at_or_below_the_mark_are_skipped() -> None:
    assert applied_rows(a_receiver(mark=2).received(a_batch(1, 4), T0)) == [3, 4]
    assert acks(a_receiver(mark=9).received(a_batch(1, 4), T0))[0].upto == 9


def test_a_batch_that_does_not_follow_is_not_taken_and_the_mark_is_said_again() -> None:
    actions = a_receiver(mark=2).received(a_batch(5, 6), T0)

    assert applied_rows(actions) == []
    assert [(ack.upto, ack.is_gap) for ack in acks(actions)] == [(2, True)]


def test_numbers_may_have_holes_within_and_between_batches() -> None:
    receiver = a_receiver()
    holed = StreamBatch(epoch="e", lane=Lane.LIVE, after=0, rows=rows(4, 4) + rows(9, 9))

    assert applied_rows(receiver.received(holed, T0)) == [4, 9]
    assert applied_rows(receiver.applied(Applied("e", Lane.LIVE, 9))) == []
    assert applied_rows(receiver.received(a_batch(20, 21, after=9), T0)) == [20, 21]


def test_one_commit_at_a_time_and_what_waits_follows_it() -> None:
    receiver = a_receiver()
    receiver.received(a_batch(1, 2), T0)

    waiting = receiver.received(a_batch(3, 4), T0)
    then = receiver.applied(Applied("e", Lane.LIVE, 2))

    assert applied_rows(waiting) == []
    assert applied_rows(then) == [3, 4]


def test_a_failed_commit_lets_nothing_behind_it_through() -> None:
    receiver = a_receiver()
    receiver.received(a_batch(1, 2), T0)
    receiver.received(a_batch(3, 4), T0)

    failed = receiver.failed(ApplyFailed("e", Lane.LIVE, retry_after_s=7))

    assert applied_rows(failed) == []
    assert [(ack.upto, ack.retry_after_s) for ack in acks(failed)] == [(0, 7)]
    assert acks(receiver.received(a_batch(3, 4), T0))[0].is_gap
    assert applied_rows(receiver.received(a_batch(1, 4), T0)) == [1, 2, 3, 4]


def test_what_waits_is_bounded() -> None:
    receiver = a_receiver()
    for number in range(1, HELD_BATCHES + 20):
        receiver.received(a_batch(number, number), T0)
    upto, total = 1, [1]
    while more := applied_rows(receiver.applied(Applied("e", Lane.LIVE, upto))):
        total += more
        upto = more[-1]

    assert total == list(range(1, HELD_BATCHES + 2))


def test_an_overloaded_owner_refuses_with_a_time_and_takes_rows_again_after_it() -> None:
    receiver = a_receiver()
    receiver.load_changed(LoadChanged(credit=0, retry_after_s=60), T0)

    refused = receiver.received(a_batch(1, 2), T0.plus(59))

    assert applied_rows(refused) == []
    assert acks(refused)[0].retry_after_s == 60
    assert applied_rows(receiver.received(a_batch(1, 2), T0.plus(60))) == [1, 2]


def test_a_batch_of_an_unknown_store_is_refused() -> None:
    batch = msgspec.structs.replace(a_batch(1, 2), epoch="other")

    assert a_receiver().received(batch, T0) == [Refuse("unknown_epoch", "other")]


@pytest.mark.parametrize("numbers", [(2, 1), (1, 1), (0, 1), (-5, 1)])
def test_rows_out_of_order_are_refused(numbers: tuple[int, int]) -> None:
    bad = tuple(msgspec.structs.replace(row, seq=seq) for row, seq in zip(rows(1, 2), numbers, strict=True))
    batch = StreamBatch(epoch="e", lane=Lane.LIVE, after=0, rows=bad)

    (refusal,) = a_receiver().received(batch, T0)
    assert isinstance(refusal, Refuse)


@pytest.mark.parametrize(
    ("kind", "body", "says"),
    [
        ("task.from_the_future", b"{}", "unknown kind"),
        ("loss.reported", b"{", "cannot be read"),
        ("loss.reported", b'{"kind":"loss.reported"}', "cannot be read"),
        ("loss.reported", b"[" * 5000, "cannot be read"),
        ("task.withdrawn", up_row("x")[1], "another kind"),
    ],
)
def test_a_row_that_cannot_be_understood_is_passed_on_with_its_problem(
    kind: str, body: bytes, says: str
) -> None:
    batch = StreamBatch(
        epoch="e", lane=Lane.LIVE, after=0, rows=(Row(seq=1, kind=kind, body=msgspec.Raw(body)), *rows(2, 2))
    )

    (apply,) = a_receiver().received(batch, T0)

    assert isinstance(apply, ApplyRows)
    assert apply.rows[0].message is None
    assert says in apply.rows[0].problem
    assert apply.rows[1].message is not None
    assert apply.upto == 2


def test_attaching_to_the_same_store_keeps_the_commit_that_is_under_way() -> None:
    receiver = a_receiver()
    receiver.received(a_batch(1, 2), T0)
    receiver.attach("e")

    assert acks(receiver.received(a_batch(1, 2), T0))[0].upto == 0
    assert acks(receiver.applied(Applied("e", Lane.LIVE, 2)))[0].upto == 2


def test_another_store_starts_at_its_own_mark_and_ignores_the_old_ones_commits() -> None:
    marks: Callable[[str, Lane], int] = lambda epoch, lane: {"e": 5}.get(epoch, 0)  # noqa: E731 - a table
    receiver = StreamReceiver(Leaf.ACK, UP_ROWS, marks)
    receiver.attach("e")
    receiver.received(a_batch(6, 7), T0)
    receiver.attach("new")

    assert receiver.marks["live"] == 0
    assert receiver.applied(Applied("e", Lane.LIVE, 7)) == []
