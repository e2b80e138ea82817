"""Every adapter of the ledger port."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cloud_coordinator.ledger.memory import MemoryLedger
from cloud_coordinator.ledger.port import Ledger
from cloud_coordinator.ledger.sqlite import SqliteLedger


@pytest.fixture(params=["memory", "sqlite"])
def reopen(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[], Ledger]]:
    """A way to open the same ledger again, as a restart does."""
    opened: list[Ledger] = []
    memory = MemoryLedger()

    def again() -> Ledger:
        if opened:
            opened[-1].close()
        opened.append(memory if request.param == "memory" else SqliteLedger(tmp_path / "ledger.db"))
        return opened[-1]

    yield again
    if opened:
        opened[-1].close()


@pytest.fixture
def ledger(reopen: Callable[[], Ledger]) -> Ledger:
    return reopen()
