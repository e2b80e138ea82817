"""The content cache against a real HTTP server that breaks, lies, or has nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest
from aiohttp import web

from edge_agent import homecoming, uplink_rows
from edge_agent.content import ContentCache
from edge_agent.coordinator_http import CoordinatorContent
from edge_agent.core.actions import FetchContent
from edge_agent.core.events import ContentMissing, ContentReady, Event
from edge_agent.homecoming import WANTED, Homecoming
from edge_agent.outgoing import OWED, Outgoing
from edge_agent.runtime_build import needed_contents
from edge_agent.uplink_rows import OutboxReader
from skerry.blobs import BlobStore
from skerry.errors import BlobNotFound, CoordinatorUnreachable
from skerry.fence import Fence
from skerry.identity import PrivateKey
from skerry.ids import TaskId, content_hash
from skerry.link.actions import ReadRows
from skerry.messages import Lane, Outcome, Row, TaskEnded, row_of
from skerry.signed_http import SeenNonces, check_signed
from skerry.testing import ManualClock
from task_queue.operations import Finish, Ok, PutMeta, Return, TrimOutbox
from task_queue.testing import FIRST, QueueDriver, memory_opener

DATA = bytes(range(256)) * 4096
NAME = content_hash(DATA)
TASK = TaskId("0" * 32)
PATIENCE_S = 30.0
KEY = PrivateKey.generate()


class Server:
    """The coordinator's content routes. breaks_at: bytes of each answer before the connection is dropped."""

    def __init__(self) -> None:
        self.content: dict[str, bytes] = {}
        self.breaks_at: int | None = None
        self.offsets: list[int] = []
        self.asked: list[str] = []
        self.refuses_with = 0
        self.seen = SeenNonces()

    async def handle(self, request: web.Request) -> web.StreamResponse:
        assert check_signed(
            request.headers,
            request.method,
            request.path,
            key_of=lambda _: bytes.fromhex(KEY.public_hex),
            seen=self.seen,
        )
        self.asked.append(request.method)
        if self.refuses_with:
            return web.Response(status=self.refuses_with)
        name = request.match_info["name"]
        if request.method == "PUT":
            self.content[name] = await request.read()
            return web.Response(status=201)
        if name not in self.content:
            return web.Response(status=404)
        if request.method == "HEAD":
            return web.Response()
        return await self._send(request, self.content[name])

    async def _send(self, request: web.Request, data: bytes) -> web.StreamResponse:
        offset = request.http_range.start or 0
        self.offsets.append(offset)
        response = web.StreamResponse(status=206 if offset else 200)
        response.content_length = len(data) - offset
        await response.prepare(request)
        end = len(data) if self.breaks_at is None else offset + self.breaks_at
        await response.write(data[offset:end])
        if end < len(data) and request.transport is not None:
            request.transport.close()
        return response


@asynccontextmanager
async def serving(server: Server) -> AsyncIterator[str]:
    app = web.Application(client_max_size=1 << 24)
    app.router.add_route("*", "/v1/blobs/{name}", server.handle)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


class Fixture:
    """A cache with what it posts."""

    def __init__(self, root: Path, url: str | None, *, quota_bytes: int = 1 << 24) -> None:
        self.clock = ManualClock()
        self.blobs = BlobStore(root, quota_bytes, clock=self.clock)
        self.needed: frozenset[str] = frozenset()
        remote = CoordinatorContent(url, node="edge-1", key=KEY) if url else None

        async def referenced() -> frozenset[str]:
            return self.needed

        self.cache = ContentCache(
            self.blobs, remote, clock=self.clock, referenced=referenced, keep_s=0.0, rng=Random(1)
        )
        self.posted: asyncio.Queue[Event] = asyncio.Queue()

    async def fetch(self, *names: str, task_id: TaskId = TASK) -> Event:
        self.cache.fetch(
            FetchContent(task_id=task_id, hashes=names, within_s=PATIENCE_S), self.posted.put_nowait
        )
        return await asyncio.wait_for(self.posted.get(), PATIENCE_S)


Story = Callable[[Server, Fixture], Any]


def run(tmp_path: Path, server: Server, story: Story, **options: Any) -> Any:
    async def whole() -> Any:
        async with serving(server) as url:
            fixture = Fixture(tmp_path / "content", url, **options)
            try:
                return await story(server, fixture)
            finally:
                await fixture.cache.close()

    return asyncio.run(whole())


def test_content_is_fetched_once_for_all_tasks_that_wait_for_it(tmp_path: Path) -> None:
    async def story(server: Server, fixture: Fixture) -> list[Event]:
        server.content[NAME] = DATA
        ids = [TaskId(f"{n:032x}") for n in range(5)]
        return await asyncio.gather(*(fixture.fetch(NAME, task_id=i) for i in ids))

    server = Server()
    events = run(tmp_path, server, story)

    assert {type(event) for event in events} == {ContentReady}
    assert server.asked == ["GET"]
    assert BlobStore(tmp_path / "content", 1 << 24).path(NAME).read_bytes() == DATA


def test_a_broken_transfer_goes_on_where_it_stopped(tmp_path: Path) -> None:
    async def story(server: Server, fixture: Fixture) -> Event:
        server.content[NAME] = DATA
        server.breaks_at = len(DATA) // 3 + 1
        return await fixture.fetch(NAME)

    server = Server()
    event = run(tmp_path, server, story)

    assert isinstance(event, ContentReady)
    assert server.offsets[0] == 0
    assert server.offsets[1:] == sorted(server.offsets[1:])
    assert len(server.offsets) >= 3  # the kernel may drop the end of a write that a close follows


def test_content_that_does_not_match_its_hash_is_not_used(tmp_path: Path) -> None:
    async def story(server: Server, fixture: Fixture) -> tuple[Event, bool]:
        server.content[NAME] = DATA[:-1] + b"x"
        return await fixture.fetch(NAME), fixture.blobs.has(NAME)

    event, is_here = run(tmp_path, Server(), story)

    assert isinstance(event, ContentMissing)
    assert not event.is_permanent
    assert not is_here


def test_content_that_nobody_has_is_told_from_a_coordinator_out_of_reach(tmp_path: Path) -> None:
    async def story(server: Server, fixture: Fixture) -> tuple[Event, Event]:
        nobody = await fixture.fetch(NAME)
        server.refuses_with = 503
        return nobody, await fixture.fetch(NAME)

    nobody, later = run(tmp_path, Server(), story)

    assert isinstance(nobody, ContentMissing)
    assert nobody.is_permanent
    assert isinstance(later, ContentMissing)
    assert not later.is_permanent
    assert "503" in later.message


def test_a_node_without_a_coordinator_says_how_to_add_the_content(tmp_path: Path) -> None:
    async def story() -> Event:
        fixture = Fixture(tmp_path / "content", None)
        return await fixture.fetch(NAME)

    event = asyncio.run(story())

    assert isinstance(event, ContentMissing)
    assert event.is_permanent
    assert "skerry models add" in event.message


def test_what_a_task_waits_for_is_kept_and_what_nobody_needs_makes_room(tmp_path: Path) -> None:
    old, kept = b"old" * 200_000, b"kept" * 100_000

    async def story(server: Server, fixture: Fixture) -> tuple[Event, bool, bool]:
        server.content[NAME] = DATA
        fixture.blobs.put_bytes(old)
        fixture.needed = frozenset({fixture.blobs.put_bytes(kept)})
        event = await fixture.fetch(NAME)
        return event, fixture.blobs.has(content_hash(old)), fixture.blobs.has(content_hash(kept))

    event, has_old, has_kept = run(tmp_path, Server(), story, quota_bytes=1_600_000)

    assert isinstance(event, ContentReady)
    assert (has_old, has_kept) == (False, True)


def test_an_upload_asks_first_and_sends_once(tmp_path: Path) -> None:
    async def story(server: Server, fixture: Fixture) -> None:
        name = fixture.blobs.put_bytes(DATA)
        await fixture.cache.upload((name,))
        await fixture.cache.upload((name,))

    server = Server()
    run(tmp_path, server, story)

    assert server.content == {NAME: DATA}
    assert server.asked == ["HEAD", "PUT"]


def test_a_refused_upload_is_tried_again_later(tmp_path: Path) -> None:
    async def story(server: Server, fixture: Fixture) -> None:
        name = fixture.blobs.put_bytes(DATA)
        server.refuses_with = 507
        with pytest.raises(CoordinatorUnreachable, match="507"):
            await fixture.cache.upload((name,))
        server.refuses_with = 0
        await fixture.cache.upload((name,))

    server = Server()
    run(tmp_path, server, story)

    assert server.content == {NAME: DATA}


def test_a_result_that_came_home_by_hash_is_fetched_once_it_can_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(homecoming, "RETRY_S", 0.01)  # the next round, not the length of the pause
    saved: list[PutMeta] = []
    late = content_hash(b"late")
    asked: list[str] = []

    async def fetch(name: str) -> None:
        asked.append(name)
        if name == late and asked.count(late) < 3:
            raise BlobNotFound("nobody has it: its node's way was closed when the report went")

    async def commit(*operations: PutMeta) -> list[Ok]:
        saved.extend(operations)
        return [Ok()]

    async def story() -> list[Any]:
        home = Homecoming(fetch, commit)
        outcome = Outcome(status="succeeded", blobs=(late, NAME))
        notes = home.note([Return(task_id=TASK, fence=Fence((1, 1), 1), outcome=outcome)])
        job = asyncio.create_task(home.run())
        async with asyncio.timeout(PATIENCE_S):
            while len(saved) < 2:  # noqa: ASYNC110 # the fake commit sets no event
                await asyncio.sleep(0)
        job.cancel()
        return notes

    (note,) = asyncio.run(story())

    assert (note.name, note.value) == (WANTED, [late, NAME])
    assert [put.value for put in saved] == [[late], []]


def test_content_that_the_coordinator_gave_up_is_brought_again(tmp_path: Path) -> None:
    async def story(server: Server, fixture: Fixture) -> None:
        name = fixture.blobs.put_bytes(DATA)
        await fixture.cache.upload((name,))
        server.content.clear()
        fixture.clock.advance(3600.0)
        await fixture.cache.upload((name,))

    server = Server()
    run(tmp_path, server, story)

    assert server.content == {NAME: DATA}


def test_what_is_owed_is_kept_until_it_is_there() -> None:
    saved: list[PutMeta] = []
    is_closed = True

    async def commit(*operations: PutMeta) -> list[Ok]:
        saved.extend(operations)
        return [Ok()]

    async def upload(names: tuple[str, ...]) -> None:
        if is_closed:
            raise CoordinatorUnreachable("closed")

    async def story() -> None:
        nonlocal is_closed
        first = Outgoing(upload, commit)
        first.soon(content_hash(b"may be needed"))
        await first.owe((NAME,))
        job = asyncio.create_task(first.run())
        await asyncio.sleep(0)
        job.cancel()
        is_closed = False
        later = Outgoing(upload, commit, saved[-1].value)
        job = asyncio.create_task(later.run())
        async with asyncio.timeout(PATIENCE_S):
            while saved[-1].value:  # noqa: ASYNC110 # the fake commit sets no event
                await asyncio.sleep(0)
        job.cancel()

    asyncio.run(story())

    assert [(put.name, put.value) for put in saved] == [(OWED, [NAME]), (OWED, [])]


class ClosedWay:
    """An upload that never works, and a store with some rows that refer to contents."""

    def __init__(self, rows: int) -> None:
        self.owed: list[str] = []
        self.sent = 0
        outcome = Outcome(status="succeeded", blobs=(NAME,))
        kind, body = row_of(
            TaskEnded(task_id=TASK, task_kind="t", fence=Fence((1, 1), 1), outcome=outcome, is_placed=True)
        )
        self.rows = tuple(Row(seq=n + 1, kind=kind, body=msgspec.Raw(body)) for n in range(rows))

    def read(self, ask: Any) -> Future[Any]:
        done: Future[Any] = Future()
        done.set_result(ask(self))
        return done

    def outbox(self, lane: Lane, after: int, *, limit: int, limit_bytes: int) -> list[Row]:
        return [row for row in self.rows if row.seq > after]

    def note_sent(self, lane: Lane, upto: int) -> None:
        self.sent = upto

    async def upload(self, names: tuple[str, ...]) -> None:
        raise CoordinatorUnreachable("closed")

    async def owe(self, names: tuple[str, ...]) -> None:
        self.owed += names


def test_a_closed_way_is_waited_for_once_and_not_by_each_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uplink_rows, "RETRY_S", 0.01)
    way = ClosedWay(rows=50)

    async def story() -> list[int]:
        reader = OutboxReader(way, way.upload, way.owe, patience_s=0.2)  # type: ignore[arg-type]
        rows = await reader.read(ReadRows(Lane.LIVE, 0, 100, 1 << 20))
        return [row.seq for row in rows]

    sent = asyncio.run(asyncio.wait_for(story(), PATIENCE_S))

    assert sent == list(range(1, 51))
    assert set(way.owed) == {NAME}


def test_a_result_is_kept_while_its_report_has_not_left() -> None:
    q = QueueDriver(memory_opener())
    task_id = q.enqueue(placement=FIRST, lease_s=60)
    q.claim()
    fence = q.start(task_id)
    outcome = Outcome(status="succeeded", blobs=(NAME,))

    q.one(Finish(task_id=task_id, fence=fence, outcome=outcome))
    before = needed_contents(q.store)
    q.one(TrimOutbox(lane=Lane.LIVE, upto=1))

    assert NAME in before
    assert NAME not in needed_contents(q.store)
