"""A small queue with something of everything, and what must hold of what comes back after its files broke.

Which rows a change can have touched is reckoned from the whole file: all the others must be there.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import apsw

from skerry.errors import StoreDamaged
from skerry.fence import Fence
from skerry.ids import TaskId
from skerry.messages import Lane
from skerry.testing import a_task
from task_queue.damage.detection import schema_shapes
from task_queue.damage.file_check import FileCheck
from task_queue.damage.log_frames import FRAME_HEAD_BYTES, HEADER_BYTES
from task_queue.damage.page_size import PAGE_BYTES
from task_queue.damage.raw_pages import _OVERFLOW, _OVERFLOW_FIRST, RawPages
from task_queue.damage.remains import remains_of
from task_queue.messages import with_head
from task_queue.operations import AppendOutbox, Enqueue, Enqueued, MarkInbox, PutMeta
from task_queue.sqlite_store import SqliteStore
from task_queue.store import Store, TaskFilter
from task_queue.task import FINAL, State
from task_queue.testing import QueueDriver, check_invariants, sqlite_opener
from task_queue.testing_disk import integrity

PAGE = PAGE_BYTES
FRAME = FRAME_HEAD_BYTES + PAGE


@dataclass
class Whole:
    """A queue as a kill left it: its files, what was acknowledged, and where in the files each row lies."""

    folder: Path
    states: dict[TaskId, State] = field(default_factory=dict)
    keys: dict[str, TaskId] = field(default_factory=dict)
    messages: dict[bytes, set[int]] = field(default_factory=dict)  #: bodies that wait → pages
    pages: dict[TaskId, set[int]] = field(default_factory=dict)
    key_index: set[int] = field(default_factory=set)  #: pages of the index by idempotency key
    store_pages: set[int] = field(default_factory=set)  #: of the store's own row
    story_pages: set[int] = field(default_factory=set)  #: of the events, whose texts nothing can check
    frames: list[int] = field(default_factory=list)  #: pages of the log's frames
    epoch: str = ""

    def pages_hit(self, part: str, offset: int) -> set[int]:
        """Return the pages whose newest content has this byte of a file."""
        if part == "":
            page = offset // PAGE + 1
            return set() if page in self.frames else {page}
        if offset < HEADER_BYTES:
            return set()
        frame, within = divmod(offset - HEADER_BYTES, FRAME)
        page = self.frames[frame]
        if within < 4:  # its number may be taken for another's
            return {page, *(page ^ 1 << bit for bit in range(8))}
        return {page} if page not in self.frames[frame + 1 :] else set()


def a_whole_queue(folder: Path, *, rounds: int = 8, is_in_log: bool = True) -> Whole:
    """Make a queue with tasks of every state: half in the file and half in its log, or all in the file."""
    folder.mkdir(parents=True)
    q = QueueDriver(sqlite_opener(folder))
    whole = Whole(folder.with_name(folder.name + "-whole"))
    for number in range(rounds):
        if number == rounds // 2:
            q.store.tidy()
        _one_round(q, whole, number)
    placed = q.enqueue(placement=Fence((1, 1)), lease_s=600.0)
    (running,) = q.claim(1)
    q.start(running)
    q.one(MarkInbox(source="coordinator", epoch="e1", lane=Lane.LIVE, upto=17))
    assert q.state(placed) is State.READY
    note(q.store, whole)
    q.one(
        PutMeta(name="kept", value={"a": 1})
    )  # a torn end of the log is no damage: nothing is in the last commit
    if not is_in_log:
        q.store.tidy()
    whole.folder.mkdir()
    for path in folder.glob("queue.db*"):
        shutil.copy(path, whole.folder)
    _locate(whole)
    q.store.close()
    return whole


def _one_round(q: QueueDriver, whole: Whole, number: int) -> None:
    for each in range(6):
        key = f"key-{number}-{each}"
        size = 9000 if each == 3 and number % 3 == 1 else 40 + 60 * each
        order = f"order-{number}" if each > 3 else None
        whole.keys[key] = q.enqueue(
            argv=("echo", "x" * size), idempotency_key=key, ordering_key=order, retries=2
        )
    for task_id in q.claim(2):
        q.finish(task_id, q.start(task_id))
    for each in range(4):
        q.one(AppendOutbox(lane=Lane.BACKLOG, kind="k", body=b'{"n":%d}' % (10 * number + each)))


def note(store: Store, whole: Whole) -> None:
    """Note what the store holds now."""
    whole.epoch = store.epoch
    whole.states = {record.task_id: record.state for record in store.find(TaskFilter(limit=100_000))}
    for lane in Lane:
        for row in store.outbox(lane, 0, limit=9999, limit_bytes=1 << 30):
            whole.messages[bytes(row.body)] = set()


def _leaf_of_overflow(raw: RawPages, number: int) -> int:
    """Return the page of a tree in which the row begins that goes on in this page, 0 when none does."""
    while raw._kinds[number] in (_OVERFLOW_FIRST, _OVERFLOW):
        before, number = number, raw._parents[number]
        if raw._kinds[before] == _OVERFLOW_FIRST:
            return number
    return 0


def _locate(whole: Whole) -> None:
    """Find the pages of each task and message."""
    path = whole.folder / "queue.db"
    log = path.with_name("queue.db-wal").read_bytes()
    whole.frames = [int.from_bytes(log[at : at + 4], "big") for at in range(HEADER_BYTES, len(log), FRAME)]
    with RawPages(path, PAGE) as raw:
        remains = remains_of(raw, schema_shapes())
        beyond: dict[int, set[int]] = {}
        for page in range(3, raw.count + 1):
            leaf = _leaf_of_overflow(raw, page)
            if leaf:
                beyond.setdefault(leaf, set()).add(page)
        whole.key_index = set(remains.of("task_request"))
        whole.store_pages = set(remains.of("store"))
        whole.story_pages = set(remains.of("event"))
        seqs: dict[int, TaskId] = {}
        for page in remains.of("task"):
            for row in raw.rows(page):
                assert row is not None
                assert isinstance(row[1][1], bytes)
                seqs[row[0]] = TaskId(row[1][1].hex())
                whole.pages[seqs[row[0]]] = {page}
        for page in remains.of("body"):
            for row in raw.rows(page):
                assert row is not None
                is_long = len(row[1][1]) > 3000  # type: ignore[arg-type]
                whole.pages[seqs[row[0]]] |= {page} | (beyond.get(page, set()) if is_long else set())
        for page in remains.of("outbox"):
            for row in raw.rows(page):
                assert row is not None
                _, _, kind, key, _, stored = row[1]
                assert isinstance(stored, bytes)
                whole.messages[with_head(str(kind), str(key), stored)] = {page}
    assert whole.pages.keys() == whole.states.keys()
    assert all(whole.messages.values())


def broken_copy(whole: Whole, folder: Path) -> Path:
    """Return a copy of the files that may be broken, the database's path."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for path in whole.folder.glob("queue.db*"):
        if not path.name.endswith("-shm"):
            shutil.copy(path, folder)
    return folder / "queue.db"


def check_whole(store: SqliteStore, path: Path) -> None:
    """Have the whole file gone through, and what is found dealt with."""
    check = FileCheck(path, store.suspect)
    assert check.wait(60.0)
    store.tidy()


def damage_now(q: QueueDriver) -> None:
    """Have the open file given up, as if a reader had met damage; the rows are still to come."""
    assert isinstance(q.store, SqliteStore)
    q.clock.advance(60.0)  # a file that is damaged again at once is not given up
    q.store.suspect(StoreDamaged("seen elsewhere"))
    q.one(MarkInbox(source="x", epoch="x", lane=Lane.LIVE, upto=1))


def finish_salvage(q: QueueDriver) -> int:
    """Let all the rows come; return in how many slices."""
    slices = 1
    while q.store.tidy():
        slices += 1
        assert slices < 100_000
    return slices


def check_what_comes_back(whole: Whole, folder: Path, lost_pages: set[int]) -> str:
    """Open the broken queue, and check that nothing readable is lost and nothing done twice.

    Returns what was salvaged, empty when the file went on.
    """
    q = QueueDriver(sqlite_opener(folder))
    try:
        store = q.store
        assert isinstance(store, SqliteStore)
        check_whole(store, folder / "queue.db")
        if (
            not lost_pages
        ):  # else a task may wait for one whose document cannot be read, until that is claimed
            check_invariants(store)
        present = {record.task_id: record.state for record in store.find(TaskFilter(limit=100_000))}
        for task_id, state in whole.states.items():
            is_readable = not whole.pages[task_id] & lost_pages
            assert not is_readable or present.get(task_id) in _allowed(state), (
                f"{task_id} was {state}, is {present.get(task_id)}: on pages {whole.pages[task_id]}"
            )
            if state in FINAL:
                assert present.get(task_id, state) in FINAL, (
                    f"{task_id} had ended: {state}, {present[task_id]}"
                )
        _check_messages(whole, store, lost_pages)
        is_new_file = store.epoch != whole.epoch
        if not whole.store_pages & lost_pages:  # else the name itself may have been hit
            assert is_new_file == (store.salvaged is not None)
        _check_nothing_runs_twice(whole, q, lost_pages)
        if not whole.story_pages & lost_pages:  # else a story may tell nonsense
            check_invariants(store)
        check_whole(store, folder / "queue.db")
        return str(store.salvaged or "")
    finally:
        q.store.close()
        assert integrity(folder / "queue.db") == ["ok"]


def check_after_cut(whole: Whole, folder: Path, part: str, size: int) -> str:
    """Check a queue whose database, or log, ends after so many bytes. Returns what was salvaged."""
    if part == "":
        count = len(whole.frames) and (whole.folder / "queue.db").stat().st_size // PAGE
        lost = {page for page in range(size // PAGE + 1, max(count, 1000)) if page not in whole.frames}
        return check_what_comes_back(whole, folder, lost)
    return check_what_comes_back(whole_until(whole, folder, size), folder, set())


def whole_until(whole: Whole, folder: Path, size: int) -> Whole:
    """Return what was acknowledged by the last commit that the first bytes of the log have whole.

    SQLite says it: of a log that only ends too early it takes every commit.
    """
    with TemporaryDirectory() as beside:
        for path in folder.glob("queue.db*"):
            shutil.copy(path, beside)
        db = apsw.Connection(f"{beside}/queue.db")
        rows: list[tuple[Any, ...]] = db.execute("SELECT task_id, state, request_key FROM task").fetchall()
        messages: list[tuple[Any, ...]] = db.execute(
            "SELECT kind, key, body FROM outbox WHERE id & 0xffffffffffff > 0"
        ).fetchall()
        epoch = str(db.execute("SELECT epoch FROM store").fetchall()[0][0])
        db.close()
    states = {TaskId(task_id.hex()): State(state) for task_id, state, _ in rows}
    return Whole(
        whole.folder,
        states=states,
        keys={key.partition("\n")[2]: TaskId(task_id.hex()) for task_id, _, key in rows if key},
        messages={with_head(*message): {1} for message in messages},
        pages={task_id: {1} for task_id in states},
        epoch=epoch,
    )


def _allowed(state: State) -> set[State]:
    """Return what a task may be after a restart: what ran is ready again, what waited for another may go."""
    return (
        {State.READY}
        if state is State.RUNNING
        else {state, State.READY}
        if state is State.BLOCKED
        else {state}
    )


def _check_messages(whole: Whole, store: Store, lost_pages: set[int]) -> None:
    rows = [row for lane in Lane for row in store.outbox(lane, 0, limit=9999, limit_bytes=1 << 30)]
    bodies = [bytes(row.body) for row in rows]
    if not set().union(*whole.messages.values()) & lost_pages:  # else one may say what another says
        assert len(bodies) == len(set(bodies)), "a message waits twice"
    missing = [
        body for body, pages in whole.messages.items() if body not in bodies and not pages & lost_pages
    ]
    assert not missing, missing
    if set().union(*whole.messages.values()) & lost_pages:
        return  # their numbers may have been hit
    order = [body for body in bodies if body.startswith(b'{"n":')]
    assert order == sorted(order, key=lambda body: int(body[5:-1])), "messages changed their order"


def _check_nothing_runs_twice(whole: Whole, q: QueueDriver, lost_pages: set[int]) -> None:
    for key, task_id in whole.keys.items():
        if whole.pages[task_id] & lost_pages and whole.key_index & lost_pages:
            continue  # nothing is left that could tell
        answer = q.one(Enqueue(task_id=q.ids.next(), task=a_task(idempotency_key=key)))
        assert isinstance(answer, Enqueued)
        assert not answer.is_new, f"{key} of {task_id} was accepted a second time"
    ran = q.drain()
    assert len(ran) == len(set(ran))
    again = [task_id for task_id in ran if whole.states.get(task_id) in FINAL]
    assert not again, f"had ended, and ran again: {again}"
