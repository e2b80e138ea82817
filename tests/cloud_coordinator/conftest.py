"""A small fleet on a virtual clock."""

from __future__ import annotations

import pytest

from cloud_coordinator.testing import ModelFleet


@pytest.fixture
def fleet() -> ModelFleet:
    """Home n1, and n2 and n3 that can take its tasks."""
    made = ModelFleet()
    for name in ("n1", "n2", "n3"):
        made.add(name)
    return made
