"""A writer over a store behind a gate, and salvages that take their time."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from skerry.testing import ManualClock
from task_queue import sqlite_store
from task_queue.writer import StoreWriter
from tests.queue.gated import GatedStore


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def gated(clock: ManualClock) -> GatedStore:
    return GatedStore(clock)


@pytest.fixture
def writer(gated: GatedStore, clock: ManualClock) -> Iterator[StoreWriter]:
    writer = StoreWriter(gated, clock)
    yield writer
    gated.gate.set()
    writer.close()


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every slice of a salvage is as short as can be, and none is waited for."""
    monkeypatch.setattr(sqlite_store, "SALVAGE_AT_ONCE_S", 0.0)
    monkeypatch.setattr(sqlite_store, "SALVAGE_SLICE_S", 0.0)
