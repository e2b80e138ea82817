"""Coordinator and agents are killed at random moments of a run: it ends, replies count once, none is lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos.round_kills import run_bout

#: Of the coordinator, and as many of agents; larger counts are `python -m tests.chaos.round_kills`.
KILLS = 4


@pytest.mark.chaos
@pytest.mark.timeout(300)
def test_a_run_through_kills_at_random_moments_counts_each_reply_once(tmp_path: Path) -> None:
    bout = run_bout(tmp_path, seed=20, kills=KILLS)

    assert bout.problems == ()
    assert bout.versions_made == 2 * KILLS
