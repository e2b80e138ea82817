"""The agent's core in a world without processes, on a store that survives a kill."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from edge_agent.core.check import check
from edge_agent.testing import Disk, World

MakeWorld = Callable[..., World]


@pytest.fixture
def make_world() -> Iterator[MakeWorld]:
    """Builds worlds; when the test is over every invariant still holds in each."""
    worlds: list[World] = []

    def make(**fields: Any) -> World:
        worlds.append(World(Disk().open, **fields))
        return worlds[-1]

    yield make
    for world in worlds:
        check(world.core.state)
        world.store.close()
