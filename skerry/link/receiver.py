"""The receiving half of a stream: each row is handed on once, in order, and acknowledged after its commit.

Owns the marks. A batch is taken only when it begins at or below the mark; rows at or below it are skipped.
One commit a lane is under way at a time and a few batches wait behind it, so a failed one leaves no gap.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from skerry.clock import Instant
from skerry.link.actions import Action, ApplyRows, Refuse
from skerry.link.events import Applied, ApplyFailed, LoadChanged
from skerry.link.wire import RowReader, send
from skerry.messages import Lane, Row, StreamAck, StreamBatch
from skerry.topics import Leaf

#: Looks up, in the owner's store, up to where a stream is applied: (epoch, lane) to mark, 0 when unknown.
MarkOf = Callable[[str, Lane], int]

HELD_BATCHES = 8


class _Lane:
    """One lane. mark: committed.  reach: the last row taken.  Invariant: mark <= reach."""

    def __init__(self, mark: int) -> None:
        self.mark = mark
        self.reach = mark
        self.committing: int | None = None
        self.held: deque[tuple[Row, ...]] = deque()

    def drop_uncommitted(self) -> None:
        """Forget what was taken beyond the mark; it will be sent again."""
        self.reach = self.mark
        self.committing = None
        self.held.clear()


class StreamReceiver:
    """Receives the rows of one sender, one epoch of its store at a time."""

    def __init__(self, leaf: Leaf, reader: RowReader, mark_of: MarkOf) -> None:
        """leaf: where acknowledgements are said.  mark_of: the store's inbox marks of this sender."""
        self._leaf = leaf
        self._reader = reader
        self._mark_of = mark_of
        self._load = LoadChanged()
        self._refused_until: Instant | None = None
        self._lanes: dict[Lane, _Lane] = {}
        self.epoch = ""

    @property
    def marks(self) -> dict[str, int]:
        """What is committed here, by lane."""
        return {lane.value: state.mark for lane, state in self._lanes.items()}

    def attach(self, epoch: str) -> None:
        """Expect the rows of this epoch; one that is the same keeps the commits that are under way."""
        if epoch != self.epoch or not self._lanes:
            self.epoch = epoch
            self._lanes = {lane: _Lane(self._mark_of(epoch, lane) if epoch else 0) for lane in Lane}

    def received(self, batch: StreamBatch, now: Instant) -> list[Action]:
        """Take the new rows of a batch, or acknowledge again what is committed."""
        if not batch.epoch or batch.epoch != self.epoch:
            return [Refuse("unknown_epoch", batch.epoch[:64])]
        if not _is_ascending(batch):
            return [Refuse("bad_body", "the rows of a batch are not in ascending order")]
        state = self._lanes[batch.lane]
        if self._is_refusing(now):
            return [self._ack(batch.lane, retry_after_s=self._load.retry_after_s)]
        if batch.after > state.reach:
            return [self._ack(batch.lane, is_gap=True)]
        rows = tuple(row for row in batch.rows if row.seq > state.reach)
        if not rows:
            return [self._ack(batch.lane)]
        return self._take(batch.lane, rows)

    def applied(self, event: Applied) -> list[Action]:
        """A commit ended well: acknowledge it and hand on what waits behind it."""
        state = self._lanes.get(event.lane)
        if state is None or event.epoch != self.epoch or event.upto != state.committing:
            return []
        state.mark = event.upto
        state.committing = None
        ack = self._ack(event.lane)
        return [ack, *self._next(event.lane)]

    def failed(self, event: ApplyFailed) -> list[Action]:
        """A commit failed: nothing behind it was committed, so ask for all of it again, later."""
        state = self._lanes.get(event.lane)
        if state is None or event.epoch != self.epoch or state.committing is None:
            return []
        state.drop_uncommitted()
        return [self._ack(event.lane, retry_after_s=event.retry_after_s)]

    def load_changed(self, event: LoadChanged, now: Instant) -> list[Action]:
        """Take note of what the owner can bear, and tell the sender when it can bear more again."""
        self._load = event
        self._refused_until = now.plus(event.retry_after_s) if event.retry_after_s > 0 else None
        if not self.epoch or event.retry_after_s > 0:
            return []
        return [self._ack(lane) for lane in self._lanes]

    def _is_refusing(self, now: Instant) -> bool:
        return self._refused_until is not None and now.uptime_s < self._refused_until.uptime_s

    def _take(self, lane: Lane, rows: tuple[Row, ...]) -> list[Action]:
        state = self._lanes[lane]
        if len(state.held) >= HELD_BATCHES:
            return []  # the sender repeats it after its time-out
        state.reach = rows[-1].seq
        state.held.append(rows)
        return self._next(lane)

    def _next(self, lane: Lane) -> list[Action]:
        state = self._lanes[lane]
        if state.committing is not None or not state.held:
            return []
        rows = state.held.popleft()
        state.committing = rows[-1].seq
        read = tuple(self._reader.read(row) for row in rows)
        return [ApplyRows(self.epoch, lane, read, state.committing)]

    def _ack(self, lane: Lane, *, is_gap: bool = False, retry_after_s: float = 0.0) -> Action:
        ack = StreamAck(
            epoch=self.epoch,
            lane=lane,
            upto=self._lanes[lane].mark,
            credit=self._load.credit,
            retry_after_s=retry_after_s,
            is_gap=is_gap,
        )
        return send(self._leaf, ack)


def _is_ascending(batch: StreamBatch) -> bool:
    before = batch.after
    for row in batch.rows:
        if row.seq <= before:
            return False
        before = row.seq
    return before >= 0
