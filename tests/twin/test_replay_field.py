"""Reports from the field: drawn scenarios, a real agent that is killed, small recorders, disks that fail."""

from __future__ import annotations

import io
import json
import logging
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from edge_agent.core.actions import Action
from edge_agent.core.core import AgentCore
from edge_agent.core.events import Event, Ticked
from edge_agent.core.ruling import Ruling
from edge_agent.core.state import Facts
from edge_agent.flight import BROKE, CHUNK_BYTES, SEGMENTS, WRITE_AFTER_S, Recorder, segments
from edge_agent.flight_report import About, pack_report, whole_lines
from policy.port import NodeView
from skerry.clock import Instant
from skerry.errors import SkerryError
from skerry.ids import TaskId
from skerry.task import TaskSpec
from tests.chaos.agent_process import PATIENCE_S, AgentProcess, command
from tests.chaos.field_reports import drawn_reports, problem_of, scenario_reports
from twin.faithful.replay import replay_report
from twin.scenario.language import parse_scenario

BUSY = """
name = "busy"
load_s = 60
[[group]]
name = "edge"
slots = 4
[[load]]
on = "edge"
rate_per_s = 20.0
fails = 0.2
ordering_keys = 3
[[fault]]
kind = "agent_kill"
on = "edge"
at_s = 30
"""


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[AgentProcess]:
    process = AgentProcess(tmp_path)
    yield process
    process.kill()


def skerry(agent: AgentProcess, *words: str) -> subprocess.CompletedProcess[str]:
    """Run the command line as an operator does."""
    line = [sys.executable, "-m", "skerry.cli", *words]
    return subprocess.run(
        line, cwd=agent.folder, capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )


def test_reports_of_drawn_scenarios_run_again_state_by_state(tmp_path: Path) -> None:
    found = []
    for seed in (11, 12, 13, 14):
        home = tmp_path / str(seed)
        home.mkdir()
        found += [replay_report(report) for report in drawn_reports(seed, home)]

    assert [problem for one in found if (problem := problem_of(one))] == []
    assert len(found) >= 8
    assert all(one.fingerprints >= 3 for one in found)


def test_segments_that_begin_in_the_middle_of_a_life_run_again(tmp_path: Path) -> None:
    (report,) = scenario_reports(parse_scenario(BUSY), 5, tmp_path, recorder_bytes=SEGMENTS * CHUNK_BYTES)

    replayed = replay_report(report)

    assert problem_of(replayed) == ""
    assert replayed.segments > 1
    names = zipfile.ZipFile(io.BytesIO(report)).namelist()
    assert "00000001.jsonl" not in names, "the oldest has made room"
    kept = sum(path.stat().st_size for path in segments(tmp_path / "edge" / "flight"))
    assert kept < (SEGMENTS + 1) * CHUNK_BYTES


def test_a_real_agent_that_was_killed_is_reported_and_runs_again(agent: AgentProcess, tmp_path: Path) -> None:
    client = agent.start()
    secret = "the-password-is-tangerine"
    for argv in (("echo", secret), ("false",), ("sleep", "0.05")) * 3:
        task_id = client.submit(command(*argv, retries=1)).task_id
        client.wait(task_id, timeout_s=PATIENCE_S)
    agent.kill()
    client = agent.start()
    client.wait(client.submit(command("echo", secret)).task_id, timeout_s=PATIENCE_S)
    assert agent.process is not None
    agent.process.terminate()
    agent.process.wait(PATIENCE_S)

    file = tmp_path / "edge.report"
    packed = skerry(agent, "report", str(file), "--config", str(agent.folder / "agent.toml"), "--json")
    replayed = skerry(agent, "twin", "replay", str(file), "--json")

    assert packed.returncode == 0, packed.stderr
    assert json.loads(packed.stdout)["size_bytes"] == file.stat().st_size
    assert replayed.returncode == 0, replayed.stdout + replayed.stderr
    told = json.loads(replayed.stdout)
    assert told["divergence"] is None
    assert told["events"] >= 10
    assert told["fingerprints"] > 3
    archive = zipfile.ZipFile(file)
    assert not any(secret.encode() in archive.read(name) for name in archive.namelist())


def test_a_report_is_not_written_over_another_without_being_told_to(
    agent: AgentProcess, tmp_path: Path
) -> None:
    agent.start()
    file = tmp_path / "edge.report"
    file.write_bytes(b"an older one")

    refused = skerry(agent, "report", str(file), "--data-dir", str(agent.data))

    assert refused.returncode != 0
    assert "there already" in refused.stderr
    assert file.read_bytes() == b"an older one"


# --- the recorder alone


FACTS = Facts(node="n", region="r", cpu_millicores=1000, memory_bytes=1 << 30)


def decide(task_id: TaskId, task: TaskSpec, node: NodeView, now: Instant) -> Ruling:
    """Nothing is claimed here, so nothing is to be decided."""
    raise AssertionError(task_id)


def half(bound: float) -> float:
    """Draw the middle."""
    return bound / 2


def recorded(recorder: Recorder, core: AgentCore, count: int, *, since: int = 0) -> None:
    """Give a core so many ticks through a recorder."""
    for number in range(since, since + count):
        recorder.handle(core, Ticked(), Instant("boot", float(number)))


class BreakingCore(AgentCore):
    """A core that a certain moment breaks."""

    def handle(self, event: Event, now: Instant) -> list[Action]:
        """See AgentCore."""
        if now.uptime_s == 7.0:
            raise ZeroDivisionError("seven")
        return super().handle(event, now)


def test_a_recorder_whose_disk_fails_says_so_once_and_the_agent_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "flight").write_text("a file where the folder should be")
    core = AgentCore(FACTS, decide, jitter=half)
    recorder = Recorder(tmp_path / "flight", 1 << 20, version="test")

    with caplog.at_level(logging.WARNING):
        recorded(recorder, core, 10)
        recorder.flush()
        recorded(recorder, core, 10, since=10)
        recorder.close()

    assert core.state.advance_in_flight, "the core has had its events"
    assert [r.getMessage() for r in caplog.records if "nothing more is recorded" in r.getMessage()]
    assert len(caplog.records) == 1


def test_an_agent_that_ends_again_and_again_at_its_start_keeps_the_recording_from_before(
    tmp_path: Path,
) -> None:
    first = Recorder(tmp_path, 1 << 20, version="test")
    recorded(first, AgentCore(FACTS, decide, jitter=half), 10)
    first.close()
    before = whole_lines(segments(tmp_path)[0])

    for _ in range(3 * SEGMENTS):
        short = Recorder(tmp_path, 1 << 20, version="test")
        recorded(short, AgentCore(FACTS, decide, jitter=half), 3)
        short.abandon()

    assert whole_lines(segments(tmp_path)[0]) == before
    assert len(segments(tmp_path)) == 1


def test_a_kill_takes_seconds_of_a_recording_and_no_more(tmp_path: Path) -> None:
    killed = Recorder(tmp_path, 1 << 20, version="test")
    recorded(killed, AgentCore(FACTS, decide, jitter=half), 100)
    killed.abandon()

    (path,) = segments(tmp_path)
    assert len(whole_lines(path)) > 100 - WRITE_AFTER_S


def test_short_recordings_of_many_starts_are_kept_as_long_as_there_is_room(tmp_path: Path) -> None:
    for _ in range(2 * SEGMENTS):
        recorder = Recorder(tmp_path, 1 << 20, version="test")
        recorded(recorder, AgentCore(FACTS, decide, jitter=half), 20)
        recorder.close()

    assert len(segments(tmp_path)) == 2 * SEGMENTS


def test_the_event_that_breaks_a_core_is_the_last_of_its_recording(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder = Recorder(tmp_path, 1 << 20, version="test")
    core = BreakingCore(FACTS, decide, jitter=half)

    with pytest.raises(ZeroDivisionError):
        recorded(recorder, core, 10)
    recorder.abandon()

    assert BROKE.encode() in whole_lines(segments(tmp_path)[0])[-1]
    report = pack_report(tmp_path, About(node="n", version="test"))
    mended = replay_report(report)
    assert mended.divergence is not None
    assert mended.divergence.what == "it does not break, as it did then"
    monkeypatch.setattr("twin.faithful.replay.AgentCore", BreakingCore)
    same = replay_report(report)
    assert same.divergence is None
    assert same.broke == "ZeroDivisionError: seven"


def test_a_recorder_that_is_off_writes_nothing(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "flight", 0, version="test")
    recorded(recorder, AgentCore(FACTS, decide, jitter=half), 10)
    recorder.close()

    assert not (tmp_path / "flight").exists()
    with pytest.raises(SkerryError, match=r"max_bytes is 0"):
        pack_report(tmp_path / "flight", About(node="n", version="test"))
