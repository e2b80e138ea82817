"""Reading the outbox for the link: a row that refers to content leaves when its content is there already."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

import msgspec

from skerry.decoding import MALFORMED
from skerry.errors import BlobError, StorageFailed
from skerry.link.actions import ReadRows
from skerry.messages import FederationReply, Outcome, Row, TaskEnded, TaskOffered
from skerry.task import TaskSpec, blobs_of
from task_queue.operations import (
    Advance,
    AppendOutbox,
    Cancel,
    CountLoss,
    Enqueue,
    Fail,
    Finish,
    HandOver,
    OfferAgain,
    Operation,
    Park,
    RefusePlacement,
)
from task_queue.store import Store
from task_queue.writer import StoreWriter

log = logging.getLogger(__name__)

#: How long the first row of a lane may wait for its content; then it goes without, and says where it is.
PATIENCE_S = 120.0
RETRY_S = 2.0
#: A disk that could not be read is asked again after this.
READ_AGAIN_S = 5.0
FAILING_REMEMBERED = 256
_ENDS_WITH_A_ROW = (Finish, Fail, Park, HandOver, RefusePlacement, Cancel)
_MAY_FILL_OUTBOX = (AppendOutbox, OfferAgain, Advance, CountLoss, *_ENDS_WITH_A_ROW)


def may_fill_outbox(operation: Operation) -> bool:
    """Decide whether there may be a row to send after it: a placement that finds no room is sent back."""
    if isinstance(operation, Enqueue):
        return operation.placement is not None
    return isinstance(operation, _MAY_FILL_OUTBOX)


class _Ended(msgspec.Struct):
    is_placed: bool = False
    outcome: Outcome | None = None


class _Offered(msgspec.Struct):
    task: TaskSpec


class _Update(msgspec.Struct):
    update: str = ""


class OutboxReader:
    """Reads rows on the store's reading thread and has their content uploaded first."""

    def __init__(
        self,
        writer: StoreWriter,
        upload: Callable[[tuple[str, ...]], Awaitable[None]],
        owe: Callable[[tuple[str, ...]], Awaitable[None]],
        *,
        patience_s: float = PATIENCE_S,
    ) -> None:
        """upload: brings contents to the coordinator, or raises BlobError.  owe: brings them later."""
        self._writer = writer
        self._upload = upload
        self._owe = owe
        self._failing: dict[str, float] = {}  #: since when each name cannot be brought
        self._closed_since: float | None = None  #: since when none can
        self._patience_s = patience_s
        self.sent_without_content = 0

    async def read(self, action: ReadRows) -> tuple[Row, ...]:
        """Return the rows asked for, cut before one whose content is not there yet."""
        rows = await self._rows(action)
        for index, row in enumerate(rows):
            names = contents_of(row)
            if names and not await self._bring(names, may_wait=index == 0):
                return rows[:index]
        return rows

    async def _rows(self, action: ReadRows) -> tuple[Row, ...]:
        def ask(store: Store) -> tuple[Row, ...]:
            lane, after = action.lane, action.after
            rows = store.outbox(lane, after, limit=action.limit, limit_bytes=action.limit_bytes)
            store.note_sent(lane, rows[-1].seq if rows else after)
            return tuple(rows)

        while True:
            try:
                return await asyncio.wrap_future(self._writer.read(ask))
            except StorageFailed as error:
                log.warning("the outbox cannot be read: %s", error)
                await asyncio.sleep(READ_AGAIN_S)

    async def _bring(self, names: tuple[str, ...], *, may_wait: bool) -> bool:
        """Whether the row may go: its content is up, or was waited for long enough.

        A closed way is waited for once, and one content once, or each row would hold up the next in turn.
        """
        loop = asyncio.get_running_loop()
        while True:
            try:
                await self._upload(names)
            except BlobError as error:
                why = str(error)
            else:
                self._failing.pop(names[0], None)
                self._closed_since = None
                return True
            now = loop.time()
            self._closed_since = self._closed_since or now
            since = min(self._closed_since, self._failing.setdefault(names[0], now))
            if now - since >= self._patience_s:
                await self._let_go_without(names, why)
                return True
            if not may_wait:
                return False
            await asyncio.sleep(RETRY_S)

    async def _let_go_without(self, names: tuple[str, ...], why: str) -> None:
        await self._owe(names)
        if not self.sent_without_content:
            log.error("rows go without their content %s, which follows: %s", ", ".join(names), why)
        self.sent_without_content += 1
        while len(self._failing) > FAILING_REMEMBERED:
            del self._failing[next(iter(self._failing))]


def contents_of(row: Row) -> tuple[str, ...]:
    """Return what the other side needs with this row: inputs of an offer, results, updates."""
    body = bytes(row.body)
    if b"sha256:" not in body:
        return ()
    try:
        if row.kind == TaskOffered.__struct_config__.tag:
            return blobs_of(msgspec.json.decode(body, type=_Offered).task)
        if row.kind == TaskEnded.__struct_config__.tag:
            ended = msgspec.json.decode(body, type=_Ended)
            return ended.outcome.blobs if ended.is_placed and ended.outcome is not None else ()
        if row.kind == FederationReply.__struct_config__.tag:
            update = msgspec.json.decode(body, type=_Update).update
            return (update,) if update else ()
    except MALFORMED as error:  # the receiver dead-letters it; it must not hold up the lane here
        log.error("row %d of kind %s cannot be read: %s", row.seq, row.kind, error)
    return ()
