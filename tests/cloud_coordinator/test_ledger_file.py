"""The SQLite ledger and its disk: newer files, damage, a full disk, a process killed in mid-commit."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import apsw
import pytest

from cloud_coordinator.ledger.sqlite import SqliteLedger
from cloud_coordinator.ledger.values import LedgerTask, Moment, TaskState
from skerry.clock import Instant
from skerry.errors import StorageFailed, StoreTooNew
from skerry.messages import Lane
from skerry.testing import a_task

WRITER = """
import sys
from pathlib import Path
from cloud_coordinator.ledger.sqlite import SqliteLedger
from skerry.messages import Lane
ledger = SqliteLedger(Path(sys.argv[1]))
for number in range(1, 1_000_000):
    with ledger.transaction():
        ledger.append_command("n1", Lane.LIVE, "task.placed", b"{}")
        ledger.count("commands")
    print(number, flush=True)
"""


def an_entry(number: int) -> LedgerTask:
    return LedgerTask(
        task_id=f"{number:032x}",
        home_node="n1",
        kind="task",
        state=TaskState.PENDING,
        received=Moment(Instant("b", 1.0), 1.0),
        task=a_task(),
    )


def test_a_file_of_a_newer_version_is_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    SqliteLedger(path).close()
    database = apsw.Connection(str(path))
    database.pragma("user_version", 99)
    database.close()
    before = path.read_bytes()

    with pytest.raises(StoreTooNew, match="schema version 99"):
        SqliteLedger(path)
    assert path.read_bytes() == before


@pytest.mark.parametrize("damage", [b"\0" * 8192, b"not a database at all" * 400])
def test_a_damaged_file_is_named_and_not_touched(tmp_path: Path, damage: bytes) -> None:
    path = tmp_path / "ledger.db"
    path.write_bytes(damage)

    with pytest.raises(StorageFailed, match=r"ledger\.db is damaged.*backup"):
        SqliteLedger(path)
    assert path.read_bytes() == damage


def test_a_full_disk_undoes_the_commit_and_later_commits_work(tmp_path: Path) -> None:
    ledger = SqliteLedger(tmp_path / "ledger.db")
    pages = int(ledger._db.pragma("page_count"))
    ledger._db.pragma("max_page_count", pages + 4)

    def fill() -> None:
        with ledger.transaction():
            for number in range(1000):
                ledger.put_task(an_entry(number))

    with pytest.raises(StorageFailed, match="full"):
        fill()
    assert ledger.pending(10) == []

    ledger._db.pragma("max_page_count", 1_000_000)
    fill()
    assert len(ledger.pending(2000)) == 1000
    ledger.close()


def test_a_killed_writer_leaves_every_commit_it_told_of(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    for target in (1, 20, 57):
        before = SqliteLedger(path).head("n1", Lane.LIVE).last
        writer = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE, text=True
        )
        assert writer.stdout is not None
        told = 0
        while told < target:
            told = int(writer.stdout.readline())
        writer.send_signal(signal.SIGKILL)
        rest = writer.stdout.read().split()
        writer.wait()
        writer.stdout.close()
        told = int(rest[-1]) if rest else told

        ledger = SqliteLedger(path)
        last = ledger.head("n1", Lane.LIVE).last
        assert before + told <= last <= before + told + 1
        rows = ledger.commands("n1", Lane.LIVE, 0, limit=10_000, limit_bytes=1 << 30)
        assert [row.seq for row in rows] == list(range(1, last + 1))
        assert ledger.counters()[0].count == last
        ledger.close()


def test_every_statement_has_a_name_that_the_adapter_uses() -> None:
    source = Path(sys.modules[SqliteLedger.__module__].__file__ or "").read_text()
    ledger = SqliteLedger(Path(":memory:"))

    unused = [name for name in ledger._sql if f'"{name}"' not in source]
    assert unused == []
    for statement in ledger._sql.values():
        ledger._db.execute(f"EXPLAIN {statement}", _any_values(statement))
    ledger.close()


def _any_values(statement: str) -> dict[str, object]:
    return {word.strip("(),;")[1:]: 1 for word in statement.replace("(", " ").split() if word.startswith(":")}
