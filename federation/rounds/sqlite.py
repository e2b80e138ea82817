"""The round ledger in one SQLite file: write-ahead log, every transaction synced. Owns one connection."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from federation.rounds.ledger import Entry, Refusal, Run, Version
from federation.rounds.rules import RuledLedger
from federation.values import ReplyState
from skerry.database import open_ledger, translated
from skerry.sql import load_schema, load_statements

T = TypeVar("T")

_PACKAGE = "federation.rounds"


class SqliteTables:
    """Rows in one database file."""

    def __init__(self, path: Path) -> None:
        """Open or create the file and bring its schema up to date.

        Raises StoreTooNew, leaving the file as it is; StorageFailed when the file cannot be used.
        """
        self._path = path
        self._sql = load_statements(_PACKAGE)
        self._db = open_ledger(path, load_schema(_PACKAGE))

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Make the block one synced commit; undone when it raises."""
        self._execute("BEGIN IMMEDIATE")
        try:
            yield
            self._execute("COMMIT")
        except BaseException:
            if self._db.in_transaction:  # SQLite may have undone it itself when the disk failed
                self._execute("ROLLBACK")
            raise

    def close(self) -> None:
        """Close in order."""
        self._db.close()

    def get_run(self, run_id: str) -> Run | None:
        """Return one run, or None."""
        return self._one("get_run", Run, run_id=run_id)

    def put_run(self, run: Run) -> None:
        """Write a run, new or known."""
        self._run("put_run", run_id=run.spec.run_id, state=run.state.value, body=msgspec.msgpack.encode(run))

    def all_runs(self) -> list[Run]:
        """Return every run, newest first."""
        return self._all("all_runs", Run)

    def add_version(self, version: Version) -> None:
        """Write a new version."""
        body = msgspec.msgpack.encode(version)
        self._run("add_version", run_id=version.run_id, version=version.version, body=body)

    def versions_of(self, run_id: str) -> list[Version]:
        """Return versions, oldest first."""
        return self._all("versions_of", Version, run_id=run_id)

    def get_entry(self, instruction_id: str) -> Entry | None:
        """Return one entry, or None."""
        return self._one("get_entry", Entry, id=instruction_id)

    def put_entry(self, entry: Entry) -> None:
        """Write an entry, new or known."""
        asked = entry.instruction
        self._run(
            "put_entry",
            id=asked.id,
            run_id=asked.run_id,
            version=asked.version,
            node=asked.node,
            state=entry.state.value,
            body=msgspec.msgpack.encode(entry),
        )

    def entries_of(self, run_id: str, states: Sequence[ReplyState] | None, node: str | None) -> list[Entry]:
        """Return entries by version and node."""
        wanted = None if states is None else msgspec.json.encode([state.value for state in states]).decode()
        return self._all("entries_of", Entry, run_id=run_id, states=wanted, node=node)

    def get_payload(self, instruction_id: str) -> bytes:
        """Return the bytes kept with an entry; empty when there are none."""
        found = self._rows("get_payload", id=instruction_id)
        return found[0][0] or b"" if found else b""

    def put_payload(self, instruction_id: str, payload: bytes) -> None:
        """Keep bytes with an entry; empty ones forget what was kept."""
        self._run("put_payload", id=instruction_id, payload=payload or None)

    def add_refusal(self, refusal: Refusal) -> None:
        """Count a refusal by run, node, instruction and code."""
        values = msgspec.structs.asdict(refusal)
        values.pop("count")
        self._run("add_refusal", **values)

    def refusals_of(self, run_id: str) -> list[Refusal]:
        """Return refusals by node, instruction and code."""
        names = Refusal.__struct_fields__
        rows = self._rows("refusals_of", run_id=run_id)
        return [Refusal(**dict(zip(names, row, strict=True))) for row in rows]

    # --- inside -----------------------------------------------------------------------------------------

    def _execute(self, sql: str) -> None:
        with translated(self._path):
            self._db.execute(sql)

    def _run(self, statement: str, **values: Any) -> None:
        with translated(self._path):
            self._db.execute(self._sql[statement], values)

    def _rows(self, statement: str, **values: Any) -> list[Any]:
        with translated(self._path):
            return self._db.execute(self._sql[statement], values).fetchall()

    def _all(self, statement: str, kind: type[T], **values: Any) -> list[T]:
        return [msgspec.msgpack.decode(row[0], type=kind) for row in self._rows(statement, **values)]

    def _one(self, statement: str, kind: type[T], **values: Any) -> T | None:
        found = self._all(statement, kind, **values)
        return found[0] if found else None


def sqlite_ledger(path: Path) -> RuledLedger:
    """Return the ledger in this file, made when missing.  Raises StoreTooNew or StorageFailed."""
    return RuledLedger(SqliteTables(path))
