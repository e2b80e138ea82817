"""The outbox and the loss ledger in memory: their part of the inner port. Knows no rules."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from itertools import islice

import msgspec

from skerry.messages import Lane
from task_queue.retention import Amount, Amounts, RowClass
from task_queue.rows import OutboxRow
from task_queue.sorted_keys import SortedKeys
from task_queue.store import Loss


class MemoryOutbox:
    """The tables, for a class that keeps an undo list. bytes_used: of all its tables."""

    _undo: list[Callable[[], None]]

    def __init__(self) -> None:
        """Start empty."""
        super().__init__()
        self.bytes_used = 0
        self.lanes: dict[Lane, dict[int, OutboxRow]] = {lane: {} for lane in Lane}
        self.lane_seqs: dict[Lane, SortedKeys] = {lane: SortedKeys() for lane in Lane}
        self._coalesced: dict[tuple[Lane, str], set[int]] = defaultdict(set)
        self._losses: dict[tuple[str, str], Loss] = {}

    def append_outbox(self, row: OutboxRow) -> None:
        """See Tables."""
        self._put_message(row)
        self._undo.append(lambda: self._take_message(row))

    def _put_message(self, row: OutboxRow) -> None:
        self.lanes[row.lane][row.seq] = row
        self.lane_seqs[row.lane].add(row.seq)
        self.bytes_used += len(row.body)
        if row.coalesce:
            self._coalesced[row.lane, row.coalesce].add(row.seq)

    def _take_message(self, row: OutboxRow) -> None:
        del self.lanes[row.lane][row.seq]
        self.lane_seqs[row.lane].remove(row.seq)
        self.bytes_used -= len(row.body)
        if row.coalesce:
            self._coalesced[row.lane, row.coalesce].discard(row.seq)

    def _delete_message(self, row: OutboxRow) -> None:
        self._take_message(row)
        self._undo.append(lambda: self._put_message(row))

    def newest_coalesced(self, lane: Lane, coalesce: str) -> int:
        """See Tables."""
        return max(self._coalesced.get((lane, coalesce), ()), default=0)

    def delete_coalesced(self, lane: Lane, coalesce: str) -> Amounts:
        """See Tables."""
        return self._delete_messages(lane, list(self._coalesced.get((lane, coalesce), ())))

    def trim_outbox(self, lane: Lane, upto: int, limit: int) -> Amounts:
        """See Tables."""
        return self._delete_messages(
            lane, [seq for seq in islice(self.lane_seqs[lane], limit) if seq <= upto]
        )

    def evict_outbox(self, lane: Lane, above: int, limit: int) -> Amounts:
        """See Tables."""
        rows = self.lanes[lane]
        telemetry = (
            seq for seq in self.lane_seqs[lane].above(above + 1) if rows[seq].row_class is RowClass.TELEMETRY
        )
        return self._delete_messages(lane, list(islice(telemetry, limit)))

    def _delete_messages(self, lane: Lane, seqs: Sequence[int]) -> Amounts:
        gone: Amounts = {}
        for row in [self.lanes[lane][seq] for seq in seqs]:
            gone[row.row_class] = gone.get(row.row_class, Amount()).plus(Amount(1, len(row.body)))
            self._delete_message(row)
        return gone

    def add_loss(self, lost_class: str, reason: str, amount: Amount) -> None:
        """See Tables."""
        before = self._losses.get((lost_class, reason))
        known = before or Loss(lost_class=lost_class, reason=reason, rows=0, size_bytes=0)
        rows, size_bytes = known.rows + amount.rows, known.size_bytes + amount.size_bytes
        self._put_loss(msgspec.structs.replace(known, rows=rows, size_bytes=size_bytes))

    def losses(self) -> list[Loss]:
        """See Tables."""
        return [self._losses[key] for key in sorted(self._losses)]

    def losses_told(self, loss: Loss) -> None:
        """See Tables."""
        self._put_loss(msgspec.structs.replace(loss, rows_told=loss.rows))

    def _put_loss(self, loss: Loss) -> None:
        before = dict(self._losses)  # a few entries
        self._losses[loss.lost_class, loss.reason] = loss
        self._undo.append(lambda: setattr(self, "_losses", before))
