"""The agent's core in a world without processes, on a store that survives a kill."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from edge_agent.core.check import check
from edge_agent.testing import World
from skerry.testing import ManualClock
from task_queue.sqlite_store import SqliteStore
from task_queue.store import Store

MakeWorld = Callable[..., World]


@pytest.fixture
def make_world(tmp_path: Path) -> Iterator[MakeWorld]:
    """Builds worlds; when the test is over every invariant still holds in each."""
    worlds: list[World] = []

    def make(**fields: Any) -> World:
        path = tmp_path / f"world-{len(worlds)}.db"

        def open_store(clock: ManualClock) -> Store:
            return SqliteStore.open(path, now=clock.now(), wall_s=clock.wall_s)

        worlds.append(World(open_store, **fields))
        return worlds[-1]

    yield make
    for world in worlds:
        check(world.core.state)
        world.store.close()
