"""A database of rounds that cannot be used is named and left as it is."""

from __future__ import annotations

from pathlib import Path

import apsw
import pytest

from federation.rounds.sqlite import sqlite_ledger
from skerry.errors import StorageFailed, StoreTooNew


def test_a_newer_database_is_left_as_it_is(tmp_path: Path) -> None:
    db = apsw.Connection(str(tmp_path / "rounds.db"))
    db.execute("PRAGMA user_version = 99")
    db.close()
    before = (tmp_path / "rounds.db").read_bytes()

    with pytest.raises(StoreTooNew, match="99"):
        sqlite_ledger(tmp_path / "rounds.db")
    assert (tmp_path / "rounds.db").read_bytes() == before


def test_a_damaged_database_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "rounds.db").write_bytes(b"no database at all" * 1000)

    with pytest.raises(StorageFailed, match="restore a backup"):
        sqlite_ledger(tmp_path / "rounds.db")
