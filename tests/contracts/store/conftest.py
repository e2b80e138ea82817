"""Every adapter of the store port, and a driver whose store is checked at the end of the test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from task_queue.testing import OpenStore, QueueDriver, check_invariants, memory_opener, sqlite_opener


@pytest.fixture(params=["sqlite", "memory"])
def opener(request: pytest.FixtureRequest, tmp_path: Path) -> OpenStore:
    """Open the same store again and again."""
    return sqlite_opener(tmp_path) if request.param == "sqlite" else memory_opener()


@pytest.fixture
def q(opener: OpenStore) -> Iterator[QueueDriver]:
    """A store with its clock."""
    driver = QueueDriver(opener)
    yield driver
    check_invariants(driver.store)
    driver.store.close()
