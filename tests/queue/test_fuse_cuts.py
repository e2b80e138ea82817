"""Power cuts of a whole agent, on a file system that forgets what was not synced: files and folders alike.

The counts of docs/evidence/fuse-cuts.json come from the same code: `make torture ARGS=files`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos.fuse_cuts import lacks, run_bout

needs_fuse = pytest.mark.skipif(bool(lacks()), reason=f"no file system of our own: {lacks()}")


@needs_fuse
@pytest.mark.chaos
@pytest.mark.timeout(300)
def test_an_agent_whose_power_is_cut_has_lost_nothing_and_does_nothing_twice(tmp_path: Path) -> None:
    bout = run_bout(tmp_path, seed=1, points=6)

    assert bout.violations == ()
    assert bout.in_start
    assert min(bout.accepted, bout.seen_done, bout.effects) > 5, "too little was at stake"


@needs_fuse
@pytest.mark.chaos
@pytest.mark.timeout(300)
def test_the_file_system_catches_an_agent_that_does_not_sync_its_commits(tmp_path: Path) -> None:
    bout = run_bout(tmp_path, seed=3, points=2, synchronous="normal")

    assert any("is lost" in each for each in bout.violations), "the control must lose something"
