"""Kills of agent, coordinator and broker at random moments leave every record exact, and no child behind."""

from __future__ import annotations

import secrets
from pathlib import Path

import pytest

from skerry.cli.demo.brokers import find_mosquitto
from tests.chaos.torture import run_bout


@pytest.mark.chaos
@pytest.mark.skipif(find_mosquitto() is None, reason="mosquitto is not installed")
def test_kills_at_random_moments_leave_every_record_in_agreement(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    seed = secrets.randbits(32)
    print(f"repeat with: python -m tests.chaos.torture --seed {seed}")

    bout = run_bout(tmp_path, seed=seed, kills=6, say=print)

    assert bout.is_clean, bout
