"""A report of a node in trouble runs again elsewhere: the same core, told the same, answers the same."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from edge_agent.flight_report import About, pack_report
from skerry.errors import SpecError
from twin.faithful.mishaps import plan_mishaps
from twin.faithful.replay import replay_report
from twin.faithful.staging import Stage
from twin.scenario.language import parse_scenario

TROUBLE = """
name = "trouble"
load_s = 90
[[group]]
name = "edge"
count = 3
[[group]]
name = "hub"
devices = ["cpu", "gpu"]
[[load]]
on = "edge"
rate_per_s = 2.0
fails = 0.3
payload_bytes = 64
[[load]]
on = "edge"
rate_per_s = 0.3
needs = "gpu"
[[fault]]
kind = "cut"
on = "some:2"
at_s = 20
for_s = 30
[[fault]]
kind = "device_fault"
on = "edge-1"
at_s = 40
for_s = 10
[[fault]]
kind = "agent_kill"
on = "edge"
at_s = 60
"""
SECRET = "x" * 64


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[bytes]]:
    home = tmp_path_factory.mktemp("trouble")
    stage = Stage(parse_scenario(TROUBLE), 3, home, recorder_bytes=4 << 20)
    stage.open()
    plan_mishaps(stage)
    stage.world.run(200.0)
    for node in stage.nodes.values():
        if node.agent is not None:
            node.agent.recorder.flush()
    yield [pack_report(home / name / "flight", About(node=name, version="test")) for name in stage.nodes]
    stage.close()


def test_every_event_is_answered_as_it_was_then(reports: list[bytes]) -> None:
    for report in reports:
        replayed = replay_report(report)

        assert replayed.divergence is None
        assert replayed.events > 300
        assert replayed.fingerprints > 0
        assert replayed.segments >= 1


def test_payloads_and_keys_do_not_leave_the_machine(reports: list[bytes]) -> None:
    for report in reports:
        archive = zipfile.ZipFile(io.BytesIO(report))
        for name in archive.namelist():
            text = archive.read(name).decode()
            assert SECRET not in text
            assert '"idempotency_key":"' not in text.replace('"idempotency_key":"…"', "")


def test_a_changed_event_is_found_and_named(reports: list[bytes]) -> None:
    source = zipfile.ZipFile(io.BytesIO(reports[0]))
    changed = io.BytesIO()
    with zipfile.ZipFile(changed, "w") as target:
        for name in source.namelist():
            lines = source.read(name).splitlines()
            if name.endswith(".jsonl"):
                at = next(n for n, line in enumerate(lines) if b'"AttemptEnded"' in line)
                lines[at] = lines[at].replace(b'"status":"succeeded"', b'"status":"failed"')
            target.writestr(name, b"\n".join(lines))

    divergence = replay_report(changed.getvalue()).divergence

    assert divergence is not None
    assert divergence.event in ("AttemptEnded", "Committed")


def test_what_is_no_report_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="not a report"):
        replay_report(b"PK nonsense")
    with pytest.raises(SpecError, match="no recording"):
        pack_report(tmp_path, About(node="n", version="1"))


def test_a_recording_cut_off_in_the_middle_of_a_chunk_is_read_up_to_there(
    reports: list[bytes], tmp_path: Path
) -> None:
    from edge_agent.flight_report import whole_lines

    source = zipfile.ZipFile(io.BytesIO(reports[0]))
    assert msgspec.json.decode(source.read("about.json"), type=About).node
    path = tmp_path / "00000001.flight"
    path.write_bytes((10).to_bytes(4, "big") + b"abc")
    assert whole_lines(path) == []
    path.write_bytes((3).to_bytes(4, "big") + b"abc")
    assert whole_lines(path) == []
