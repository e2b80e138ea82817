"""A record of a long count names what it exercises, and is void once any of that changes."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from tests.chaos import evidence
from tests.chaos.demo_round import EXERCISES as OF_THE_DEMO
from tests.chaos.evidence import (
    SERVICES,
    Evidence,
    content_hash,
    files_of,
    load_evidence,
    queue_files,
    save_evidence,
)

OLD = b'{"name": "x", "command": "make x", "commit": "c", "count": 40, "entries": [{"kills": 40}]}'


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where records are kept."""
    monkeypatch.setattr(evidence, "RECORDS", tmp_path)
    return tmp_path / "x.json"


def test_a_record_that_stands_is_gone_on_with_and_names_what_it_exercises(kept: Path) -> None:
    save_evidence(load_evidence("x", "make x", ("policy", "devices")).with_entry(10, {"kills": 10}))

    again = load_evidence("x", "make x", ("policy", "devices"))

    assert (again.count, again.exercises) == (10, ("devices", "policy"))
    assert msgspec.json.decode(kept.read_bytes())["exercises"] == ["devices", "policy"]


def test_what_never_came_to_pass_is_null_in_a_record(kept: Path) -> None:
    save_evidence(load_evidence("x", "make x", ("devices",)).with_entry(1, {"drain_begins_s": float("inf")}))

    assert msgspec.json.decode(kept.read_bytes())["entries"] == [{"drain_begins_s": None}]


def test_a_record_of_other_files_is_void(kept: Path) -> None:
    save_evidence(load_evidence("x", "make x", ("devices",)).with_entry(10, {}))

    assert load_evidence("x", "make x", ("devices", "policy")).count == 0


@pytest.mark.parametrize("written", [OLD, b'{"name": "x"}'])
def test_a_record_of_an_older_shape_is_read_and_void(written: bytes, kept: Path) -> None:
    kept.write_bytes(written)

    assert load_evidence("x", "make x", ("devices",)) == Evidence(
        name="x",
        command="make x",
        commit=evidence.commit_now(),
        exercises=("devices",),
        content=content_hash(("devices",)),
    )


def test_every_record_that_is_kept_can_be_read() -> None:
    names = {path.stem for path in evidence.RECORDS.glob("*.json") if not path.stem.startswith("bench-")}

    assert names
    for name in names:
        assert msgspec.json.decode((evidence.RECORDS / f"{name}.json").read_bytes(), type=Evidence).entries


def test_the_demo_rests_on_more_than_the_services_and_nothing_on_the_command_line() -> None:
    def folders(exercises: tuple[str, ...]) -> set[str]:
        return {name.split("/")[0] for name in files_of(exercises)}

    assert folders(OF_THE_DEMO) - folders(SERVICES) == {"federation", "twin"}
    assert not any(name.startswith("skerry/cli/") for name in files_of(OF_THE_DEMO))
    assert {"queue", "skerry"} == folders(queue_files())


def test_the_same_files_under_another_name_are_another_record() -> None:
    assert content_hash(("policy",)) != content_hash(("policy", "policy/guard"))
