"""A database of every earlier version is carried over: each record, its story, messages, marks and values."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import apsw
import msgspec
import pytest

from skerry.database import Step, pragma, upgrade
from skerry.fence import Fence
from skerry.messages import Lane
from skerry.task import CommandSpec
from skerry.testing import ManualClock, a_task
from task_queue.damage.page_size import PAGE_BYTES, page_bytes_of
from task_queue.limits import Limits
from task_queue.migrations import schema
from task_queue.operations import Advance, Advanced, Enqueue, Enqueued, Replay
from task_queue.seals import unseal_packed
from task_queue.sqlite_store import SqliteStore
from task_queue.store import TaskFilter
from task_queue.task import State
from task_queue.testing import QueueDriver, check_invariants, sqlite_opener
from task_queue.testing_disk import integrity
from tests.queue.old_schemas import (
    ACCEPTED_WALL_S,
    ATTEMPTS,
    DECISIONS,
    ENDED_WALL_S,
    FINAL_STATES,
    OUTBOX,
    OUTCOMES,
    STORIES,
    TASKS,
    task_id_of,
    write_old,
)

VERSIONS = range(1, len(schema()))


@pytest.fixture(params=VERSIONS, ids=lambda version: f"from {version}")
def q(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[QueueDriver]:
    """A queue that was opened on the database of an earlier version."""
    write_old(tmp_path / "queue.db", request.param)
    driver = QueueDriver(sqlite_opener(tmp_path))
    yield driver
    check_invariants(driver.store)
    driver.store.close()


def test_every_record_is_carried_over(q: QueueDriver) -> None:
    for seq, state, more in TASKS:
        record = q.record(task_id_of(seq))

        assert record.state == ("ready" if state == "running" else state), seq  # the restart has settled it
        assert record.task == a_task(
            ("echo", str(seq)),
            kind="greet",
            idempotency_key="order-6" if seq == 6 else None,
            ordering_key="k" if seq in (3, 4) else None,
        )
        assert record.accepted_wall_s == ACCEPTED_WALL_S
        assert record.ended_wall_s == (ENDED_WALL_S if state in FINAL_STATES else None)
        assert record.attempt == more.get("attempt", 0)
        assert record.waiting_for == more.get("waiting_for", "")
        assert (record.decision.reason if record.decision else None) == DECISIONS.get(seq)
    assert len(q.store.find(TaskFilter(limit=100))) == len(TASKS)


def test_outcomes_are_carried_over_and_one_that_cannot_be_read_says_so(q: QueueDriver) -> None:
    for seq, expected in OUTCOMES.items():
        outcome = q.record(task_id_of(seq)).outcome
        assert outcome is not None
        assert {name: getattr(outcome, name) for name in expected} == expected

    damaged = q.record(task_id_of(14)).outcome

    assert damaged is not None
    assert "damaged" in damaged.error


def test_attempts_are_carried_over_with_their_decisions_and_ends(q: QueueDriver) -> None:
    for seq, state, _ in TASKS:
        expected = [
            (number, "interrupted" if state == "running" else ended, runtime_s)
            for of, number, ended, _, runtime_s in ATTEMPTS
            if of == seq and seq != 14  # how long that one took was in what cannot be read
        ]
        attempts = q.record(task_id_of(seq)).attempts
        if seq != 14:
            assert [(one.fence.attempt, one.ended, one.runtime_s) for one in attempts] == expected
        assert all(one.decision is not None and one.decision.reason == "free" for one in attempts)
        assert all(one.device == "npu0" for one in attempts)
        weighed = [one.decision.candidates for one in attempts if one.decision is not None]
        assert all(
            [(each.node, each.device) for each in both] == [("n1", "npu0"), ("n2", "cpu0")]
            for both in weighed
        )
        assert all(first.score == 9.5 for first, _ in weighed)
        assert all([verdict.allowed for verdict in second.verdicts] == [False] for _, second in weighed)


def test_stories_are_made_from_what_was_kept(q: QueueDriver) -> None:
    for seq, expected in STORIES.items():
        told = [event.what for event in q.store.story(task_id_of(seq))]

        settled = ["interrupted"] if seq == 3 else []
        assert told == ["accepted", *expected, *settled], seq


def test_messages_marks_and_values_are_carried_over(q: QueueDriver) -> None:
    for lane, seq, kind in OUTBOX:
        rows = q.store.outbox(Lane(lane), 0, limit=100, limit_bytes=1 << 20)
        assert [(row.seq, row.kind, row.key) for row in rows] == [(seq, kind, task_id_of(seq))]
    assert q.store.inbox_mark("coordinator", "e", Lane.LIVE) == 41
    assert q.store.meta("term") == 7
    assert (q.store.epoch, q.store.session) == ("epoch-1", 6)


def test_work_goes_on_where_it_was(q: QueueDriver) -> None:
    assert q.claim(10) == [task_id_of(1), task_id_of(3)]
    fence = q.start(task_id_of(3))
    q.finish(task_id_of(3), fence)
    replayed = q.one(Replay(task_id=task_id_of(7)))
    again = q.one(Enqueue(task_id=q.ids.next(), task=a_task(idempotency_key="order-6")))

    assert fence == Fence((), 2)
    assert q.claim(10) == [task_id_of(4), task_id_of(7)]
    assert getattr(replayed, "state", None) is State.READY
    assert again == Enqueued(task_id=task_id_of(6), is_new=False)
    assert q.start(task_id_of(7)) == Fence((), 3)


class Cut(Exception):
    """The process ends here."""


@pytest.mark.parametrize("version", VERSIONS)
def test_a_step_that_is_cut_off_at_any_statement_is_made_again(tmp_path: Path, version: int) -> None:
    old = tmp_path / "old"
    write_old(old, version)
    cuts = 0
    while _cut_after(old, tmp_path / "cut", cuts):
        cuts += 1

    assert cuts > 5 * (len(schema()) - version)


def _cut_after(old: Path, copy: Path, statements: int) -> bool:
    """Upgrade a copy, ending after so many statements; then again. Return whether it was cut off."""
    shutil.copy(old, copy)
    left = [statements]

    def trace(cursor: object, sql: str, bindings: object) -> bool:
        left[0] -= 1
        if left[0] < 0:
            raise Cut
        return True

    db = apsw.Connection(str(copy))
    db.exec_trace = trace
    with suppress(Cut):
        upgrade(db, schema())
    db.exec_trace = None
    assert pragma(db, "user_version") <= len(schema())
    upgrade(db, schema())
    told = db.execute("SELECT count(*), sum(events) FROM task").fetchall()
    events = db.execute("SELECT count(*) FROM event").fetchall()
    tables = {name for (name,) in db.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
    db.close()
    assert told == [(len(TASKS), sum(map(len, STORIES.values())))]
    assert events == [(sum(map(len, STORIES.values())),)]
    assert not tables & {"old_task", "attempt", "outbox_before"}
    return left[0] < 0


def test_a_database_of_the_newest_version_is_not_changed_by_opening_it(tmp_path: Path) -> None:
    write_old(tmp_path / "queue.db", len(schema()))
    db = apsw.Connection(str(tmp_path / "queue.db"))
    before = db.execute("SELECT type, name, sql FROM sqlite_schema ORDER BY name").fetchall()

    upgrade(db, schema())

    assert db.execute("SELECT type, name, sql FROM sqlite_schema ORDER BY name").fetchall() == before
    db.close()


def test_python_parts_run_before_and_after_their_script_in_one_transaction(tmp_path: Path) -> None:
    db = apsw.Connection(str(tmp_path / "ledger.db"))
    done: list[str] = []

    def before(db: apsw.Connection) -> None:
        done.append("before")
        db.execute("INSERT INTO a VALUES (1)")

    def after(db: apsw.Connection) -> None:
        done.append("after")
        if len(done) < 4:
            raise Cut
        db.execute("INSERT INTO b SELECT x + 1 FROM a")

    steps: list[Step | str] = [
        "CREATE TABLE a (x)",
        Step(script="CREATE TABLE b (x)", before=before, after=after),
    ]
    with pytest.raises(Cut):
        upgrade(db, steps)
    version, left = pragma(db, "user_version"), db.execute("SELECT count(*) FROM a").fetchall()
    upgrade(db, steps)

    assert (version, left) == (1, [(0,)])
    assert done == ["before", "after"] * 2
    assert db.execute("SELECT x FROM a UNION ALL SELECT x FROM b").fetchall() == [(1,), (2,)]
    db.close()


def test_defaults_are_part_of_the_stored_form(tmp_path: Path) -> None:
    """A body leaves out what is the default: a changed default would change tasks that wait."""
    clock = ManualClock()
    store = SqliteStore.open(
        tmp_path / "queue.db", now=clock.now(), wall_s=clock.wall_s, limits=Limits(ballast_bytes=0)
    )
    task = a_task()
    store.apply([Enqueue(task_id=task_id_of(1), task=task)], now=clock.now())
    store.close()
    db = apsw.Connection(str(tmp_path / "queue.db"))

    ((body,),) = db.execute("SELECT body FROM body")

    db.close()
    packed = unseal_packed(body)
    assert packed is not None
    assert msgspec.msgpack.decode(packed) == {"spec": {"executor": "command", "argv": ["true"]}}
    assert task.spec == CommandSpec(argv=("true",), env={}, stdin="", privileged=False)
    assert (task.kind, task.tenant, task.priority, task.sla) == ("task", "default", 4, "standard")
    assert (task.max_runtime_s, task.retries, task.effect) == (300.0, 2, "idempotent")
    assert (task.resources.cpu_millicores, task.resources.memory_bytes) == (1000, 256 * 1024 * 1024)
    assert (task.resources.accelerator, task.resources.accelerator_count) == ("any", 1)


@pytest.mark.parametrize(
    "gone", ["nothing", "the header", "the header and the log", "the header and the file's rest"]
)
@pytest.mark.parametrize("size", [PAGE_BYTES, 4096])
def test_the_size_of_the_pages_is_found_though_the_header_is_gone(
    tmp_path: Path, size: int, gone: str
) -> None:
    path, log = tmp_path / "queue.db", tmp_path / "queue.db-wal"
    db = apsw.Connection(str(path))
    for setting in (f"page_size = {size}", "auto_vacuum = INCREMENTAL", "journal_mode = WAL"):
        db.execute(f"PRAGMA {setting}").fetchall()
    upgrade(db, schema())
    db.execute("PRAGMA wal_checkpoint").fetchall()
    db.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
    db.close()
    if gone != "nothing":
        whole = path.read_bytes()
        path.write_bytes(bytes(100) + (whole[100:] if "rest" not in gone else b""))
    if "log" in gone:
        log.unlink()

    assert page_bytes_of(path) == size


def test_a_new_database_has_small_pages_and_an_old_one_keeps_its_own(tmp_path: Path) -> None:
    write_old(tmp_path / "queue.db", 2)
    for folder in (tmp_path, tmp_path / "new"):
        QueueDriver(sqlite_opener(folder)).store.close()

    assert (page_bytes_of(tmp_path / "queue.db"), page_bytes_of(tmp_path / "new/queue.db")) == (
        4096,
        PAGE_BYTES,
    )


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE store SET book = '{'",
        "UPDATE store SET book = x'ff'",
        "UPDATE attempt SET decision = CAST('{\"candidates\": null}' AS BLOB)",
        'UPDATE attempt SET decision = CAST(\'{"candidates": [1, null, "x"]}\' AS BLOB)',
        "UPDATE task SET decision = CAST('{\"candidates\": 7}' AS BLOB)",
        "INSERT INTO meta VALUES ('store.salvage', x'ff')",
        "INSERT INTO meta VALUES ('store.salvage', CAST('{\"copy\": 5}' AS BLOB))",
        "UPDATE attempt SET ended = 'exploded', error = x'ff', runtime_s = 'long'",
    ],
)
def test_odd_values_in_an_old_database_never_keep_the_queue_from_starting(
    tmp_path: Path, version: int, damage: str
) -> None:
    write_old(tmp_path / "queue.db", version)
    db = apsw.Connection(str(tmp_path / "queue.db"))
    db.execute(damage).fetchall()
    db.close()

    q = QueueDriver(sqlite_opener(tmp_path))
    states = {seq: q.store.get(task_id_of(seq)) for seq, _, _ in TASKS}

    assert all(states.values())
    assert q.state(q.enqueue()) is State.READY
    q.store.close()
    assert integrity(tmp_path / "queue.db") == ["ok"]


def test_a_lease_that_the_first_version_kept_runs_out_as_it_would_have(tmp_path: Path) -> None:
    write_old(tmp_path / "queue.db", 1)
    db = apsw.Connection(str(tmp_path / "queue.db"))
    db.execute("UPDATE task SET placement = '1.9/0', known = '1.9/0', lease_on_s = 250.0 WHERE seq = 1")
    db.close()
    q = QueueDriver(sqlite_opener(tmp_path))

    q.clock.advance(49)
    before = q.one(Advance())
    q.clock.advance(2)
    after = q.one(Advance())

    assert isinstance(before, Advanced)
    assert isinstance(after, Advanced)
    assert (before.dropped, after.dropped) == ((), ((task_id_of(1), State.READY),))
    q.store.close()


@pytest.mark.parametrize("version", VERSIONS)
def test_a_damaged_database_of_an_earlier_version_keeps_its_clock_and_its_numbers(
    tmp_path: Path, version: int
) -> None:
    path = tmp_path / "queue.db"
    write_old(path, version)
    _spoil_the_first_page_of(path, "inbox")

    q = QueueDriver(sqlite_opener(tmp_path))
    waiting = task_id_of(2)  # delayed to 500 powered-on seconds, of which 200 have passed
    q.clock.advance(299)
    q.one(Advance())
    before = q.state(waiting)
    q.clock.advance(2)
    q.one(Advance())

    assert q.store.salvaged is not None
    assert (before, q.state(waiting)) == (State.DELAYED, State.READY)
    assert q.store.session == 6
    q.store.close()


def _spoil_the_first_page_of(path: Path, table: str) -> None:
    db = apsw.Connection(str(path))
    size = db.pragma("page_size")
    ((first,),) = db.execute("SELECT rootpage FROM sqlite_schema WHERE name = ?", (table,))
    db.close()
    with path.open("r+b") as file:
        file.seek((first - 1) * size)
        file.write(b"\xff" * size)
