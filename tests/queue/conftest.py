"""A writer over a store behind a gate."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from skerry.testing import ManualClock
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
