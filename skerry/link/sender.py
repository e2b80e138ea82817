"""The sending half of a stream: rows stay in the owner's store until the other side's application has them.

Owns what was sent and acknowledged, by lane; keeps no row. Each lane has its own window of unacknowledged
batches, so that a backlog never stands before live work. After silence, a gap or a new session it goes back
to the acknowledged mark and reads again: repetition is harmless, the receiver skips what it has.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

import msgspec

from skerry.clock import Instant
from skerry.link.actions import Action, Alarm, ReadRows, TrimOutbox
from skerry.link.events import RowsRead
from skerry.link.wire import send
from skerry.messages import Lane, LossReported, Row, StreamAck, StreamBatch, row_of
from skerry.topics import Leaf

BATCH_ROWS = 200
BATCH_BYTES = 64 * 1024
WINDOW_BATCHES = 4
RESEND_S = 30.0
#: A larger row fits no envelope; it is replaced by a report of its loss. Bytes.
MAX_ROW_BYTES = 384 * 1024
_RESEND_CAP_S = 120.0
_GAP_PAUSE_S = 1.0
_RETRY_CAP_S = 3600.0


class _Sent(msgspec.Struct, frozen=True):
    """A batch that is not acknowledged."""

    upto: int
    rows: int
    at: Instant


class _Lane:
    """One lane. Invariant: acked <= sent, and in_flight holds exactly the batches between the two."""

    def __init__(self) -> None:
        self.acked = 0
        self.sent = 0
        self.credit = 1
        self.in_flight: deque[_Sent] = deque()
        self.has_more = True
        self.has_grown = False  #: since the read that is under way
        self.reading_since: Instant | None = None
        self.paused_until: Instant | None = None
        self.went_back_at: Instant | None = None
        self.timeouts = 0

    @property
    def rows_in_flight(self) -> int:
        return sum(batch.rows for batch in self.in_flight)

    def go_back(self) -> None:
        """Forget what was sent beyond the acknowledged mark."""
        self.sent = self.acked
        self.in_flight.clear()
        self.has_more = True
        self.reading_since = None

    def start_at(self, mark: int, credit: int) -> None:
        """Begin after a row that the other side says it holds."""
        self.acked = mark
        self.credit = credit
        self.timeouts = 0
        self.paused_until = self.went_back_at = None
        self.go_back()

    def advance(self, upto: int) -> None:
        """Take note that everything up to there is committed."""
        self.acked = upto
        self.timeouts = 0
        if upto > self.sent:  # it had an earlier sending of these: the read under way starts too low
            self.sent = upto
            self.has_more = True
            self.reading_since = None
        while self.in_flight and self.in_flight[0].upto <= upto:
            self.in_flight.popleft()

    def room(self) -> int:
        """Return how many rows may be read now; with nothing in flight one may always go, as a probe."""
        if len(self.in_flight) >= WINDOW_BATCHES:
            return 0
        free = self.credit - self.rows_in_flight
        return min(BATCH_ROWS, max(free, 0 if self.in_flight else 1))

    def is_overdue(self, now: Instant) -> bool:
        """Decide whether the oldest batch waited too long for its acknowledgement."""
        limit_s = min(_RESEND_CAP_S, RESEND_S * 2.0 ** min(self.timeouts, 8))
        return bool(self.in_flight) and now.since(self.in_flight[0].at) >= limit_s


class StreamSender:
    """Sends the rows of one store, all lanes, to one receiver."""

    def __init__(self, leaf: Leaf, epoch: str) -> None:
        """leaf: where batches are said.  epoch: id of the store whose rows these are."""
        self._leaf = leaf
        self.epoch = epoch
        self._lanes = {lane: _Lane() for lane in Lane}
        self._is_open = False

    @property
    def is_open(self) -> bool:
        """Rows may flow."""
        return self._is_open

    @property
    def marks(self) -> dict[Lane, int]:
        """What the other side has acknowledged, by lane."""
        return {lane: state.acked for lane, state in self._lanes.items()}

    def open(self, marks: Mapping[str, int], credit: int, now: Instant) -> list[Action]:
        """Begin at the marks that the other side holds; what lies below them may leave the outbox."""
        self._is_open = True
        actions: list[Action] = []
        for lane, state in self._lanes.items():
            mark = max(0, marks.get(lane.value, 0))
            state.start_at(mark, credit)
            if mark:
                actions.append(TrimOutbox(lane, mark))
        return actions + self._pump(now)

    def resume(self, now: Instant) -> list[Action]:
        """Begin again at what was acknowledged."""
        credit = max(state.credit for state in self._lanes.values())
        return self.open({lane.value: mark for lane, mark in self.marks.items()}, credit, now)

    def close(self) -> None:
        """Send nothing more; what is in flight will be read again."""
        self._is_open = False
        for state in self._lanes.values():
            state.go_back()

    def grew(self, lane: Lane, now: Instant) -> list[Action]:
        """There are new rows in a lane."""
        state = self._lanes[lane]
        state.has_more = state.has_grown = True
        return self._pump(now)

    def rows_read(self, event: RowsRead, now: Instant) -> list[Action]:
        """Send the rows that were asked for; an answer to an older question is dropped."""
        state = self._lanes[event.lane]
        if not self._is_open or state.reading_since is None or event.after != state.sent:
            return []
        state.reading_since = None
        if not event.rows:
            state.has_more = state.has_grown
            return self._pump(now)
        rows, actions = self._fitting(event.rows)
        batch = StreamBatch(epoch=self.epoch, lane=event.lane, after=state.sent, rows=rows)
        state.sent = rows[-1].seq
        state.in_flight.append(_Sent(state.sent, len(rows), now))
        return [*actions, send(self._leaf, batch), *self._pump(now)]

    def acked(self, ack: StreamAck, now: Instant) -> list[Action]:
        """Take note of an acknowledgement: advance, or go back when the receiver says what is missing."""
        state = self._lanes[ack.lane]
        if not self._is_open or ack.epoch != self.epoch or ack.upto < state.acked:
            return []
        actions: list[Action] = []
        state.credit = max(0, ack.credit)
        if ack.upto > state.acked:
            state.advance(ack.upto)
            actions.append(TrimOutbox(ack.lane, ack.upto))
        if ack.retry_after_s > 0:
            state.go_back()
            state.paused_until = now.plus(min(ack.retry_after_s, _RETRY_CAP_S))
        else:
            state.paused_until = None
            if ack.is_gap:
                self._close_gap(state, now)
        return actions + self._pump(now)

    def overtaken(self, said_at: Instant, now: Instant) -> list[Action]:
        """Go back where batches sent before a moment are not acknowledged, though what came after is.

        The other side takes what it hears in order: they never arrived, or their acknowledgement did not. So
        a link that was dead without anybody's knowing is used again at once, and not after the time-out.
        """
        for state in self._lanes.values():
            if state.in_flight and state.in_flight[0].at.uptime_s < said_at.uptime_s:
                state.go_back()
        return self._pump(now)

    def tick(self, now: Instant) -> list[Action]:
        """Go back where an acknowledgement, or the answer to a read, is overdue."""
        for state in self._lanes.values():
            if state.is_overdue(now):
                state.timeouts += 1
                state.go_back()
            elif state.reading_since is not None and now.since(state.reading_since) >= RESEND_S:
                state.reading_since = None
        return self._pump(now)

    def _close_gap(self, state: _Lane, now: Instant) -> None:
        # Each batch behind a lost one is answered with the same mark: go back once for all of them.
        if state.went_back_at is None or now.since(state.went_back_at) >= _GAP_PAUSE_S:
            state.went_back_at = now
            state.go_back()

    def _pump(self, now: Instant) -> list[Action]:
        if not self._is_open:
            return []
        return [read for lane in self._lanes if (read := self._next_read(lane, now)) is not None]

    def _next_read(self, lane: Lane, now: Instant) -> ReadRows | None:
        state = self._lanes[lane]
        if not state.has_more or state.reading_since is not None:
            return None
        if state.paused_until is not None:
            if now.uptime_s < state.paused_until.uptime_s:
                return None
            state.paused_until = None
        room = state.room()
        if not room:
            return None
        state.reading_since = now
        state.has_grown = False
        return ReadRows(lane, state.sent, room, BATCH_BYTES)

    def _fitting(self, rows: tuple[Row, ...]) -> tuple[tuple[Row, ...], list[Action]]:
        """Cut to one batch: up to BATCH_BYTES, a larger row alone; what fits nothing becomes a report."""
        first, lost = _sendable(rows[0])
        taken = [first]
        size = len(first.body)
        for row in rows[1:BATCH_ROWS]:
            size += len(row.body)
            if size > BATCH_BYTES:
                break
            taken.append(row)
        return tuple(taken), lost


def _sendable(row: Row) -> tuple[Row, list[Action]]:
    if len(row.body) <= MAX_ROW_BYTES:
        return row, []
    kind, body = row_of(LossReported(lost_class=row.kind, reason="oversized", count=1))
    text = f"row {row.seq} ({row.kind}) has {len(row.body)} bytes, at most {MAX_ROW_BYTES} can be sent"
    return Row(seq=row.seq, kind=kind, body=msgspec.Raw(body), key=row.key), [Alarm(text)]
