"""The start of an agent does not depend on its backlog, and nothing loads the backlog into memory.

docs/evidence/backlog-start.json holds the figures for 1,000,000 rows, from the same code:
`python -m tests.chaos.backlog_start`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos.backlog_start import GOAL_BYTES, compare, figures

ROWS = 100_000


@pytest.mark.chaos
def test_an_agent_with_a_large_backlog_takes_tasks_at_once_and_stays_small(tmp_path: Path) -> None:
    empty, full = compare(tmp_path, ROWS, turns=1, watched_s=2.0)

    found = figures(empty, full)
    size = (tmp_path / "backlog" / "data" / "queue.db").stat().st_size
    assert size > GOAL_BYTES, "the backlog is too small to show in memory"
    assert found["extra_bytes"] < GOAL_BYTES
    assert found["cpu_s"] < 3 * found["cpu_empty_s"] + 1.0, "the start looks at the backlog"
