"""The long runs of the twin: recorded when they are clean, and not run again while the record stands."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from tests.chaos import evidence, soak

SMALL = """
name = "small"
about = "Two nodes work alone for half a minute."
shows = ["lost after an outage"]
load_s = 30
settle_s = 30

[[group]]
name = "edge"
count = 2

[[load]]
rate_per_s = 0.5

[[fault]]
kind = "cut"
at_s = 0
for_s = 30
"""


@pytest.fixture
def scenario(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A file with a scenario; records are kept beside it."""
    monkeypatch.setattr(evidence, "RECORDS", tmp_path)
    path = tmp_path / "small.toml"
    path.write_text(SMALL)
    return str(path)


def test_a_clean_run_is_recorded_and_stands(
    scenario: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert soak.main([scenario]) == 0
    capsys.readouterr()

    assert soak.main([scenario]) == 0

    assert capsys.readouterr().out == "small: the record of it stands\n"
    record = msgspec.json.decode((tmp_path / "soak.json").read_bytes(), type=evidence.Evidence)
    assert record.count == record.entries[0]["done"] > 0


def test_what_is_not_clean_is_not_recorded(
    scenario: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = soak.run(scenario)
    monkeypatch.setattr(soak, "run", lambda _: {**found, "lost": 1})

    assert soak.main([scenario]) == 1

    assert not (tmp_path / "soak.json").exists()


def test_a_scenario_that_does_not_exist_is_named(scenario: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        soak.main(["no-such-outage"])

    assert "no-such-outage" in capsys.readouterr().err
