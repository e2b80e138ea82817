"""One world over several processes: it keeps the laws, adds up, and is the same each time."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import psutil
import pytest
from typer.testing import CliRunner

from skerry.cli import app
from skerry.errors import SpecError
from twin.faithful.run import Report
from twin.faithful.shards import run_in_shards
from twin.scenario.language import Scenario, parse_scenario
from twin.scenario.library import find

TROUBLE = """
name = "trouble"
load_s = 90
settle_s = 200

[coordinator]
lease_s = 60

[[group]]
name = "edge"
count = 3

[[group]]
name = "far"
region = "south"

[[load]]
rate_per_s = 0.5

[[load]]
on = "edge"
rate_per_s = 0.2
pin = "far"

[[fault]]
kind = "cut"
on = "edge"
at_s = 20
for_s = 30

[[fault]]
kind = "agent_kill"
on = "some:2"
at_s = 30
down_s = 5

[[fault]]
kind = "coordinator_kill"
at_s = 60
down_s = 4

[[fault]]
kind = "partition"
on = "far"
at_s = 70
for_s = 15

[[fault]]
kind = "wire"
at_s = 5
for_s = 60
loss = 0.05
delay_s = [0.001, 0.2]
"""


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Report:
    return run_in_shards(parse_scenario(TROUBLE), 7, 2, home=tmp_path_factory.mktemp("first"))


def test_laws_hold_and_everything_ends_though_nodes_live_in_other_processes(report: Report) -> None:
    assert report.broken == ()
    assert (report.lost, report.done_twice) == (0, 0)
    assert report.submitted > 200
    assert sum(report.ended.values()) == report.submitted


def test_work_goes_from_a_node_in_one_process_to_one_in_another(report: Report) -> None:
    assert report.figures["placements"] >= 1


def test_seed_and_number_of_processes_decide_a_run(report: Report, tmp_path: Path) -> None:
    again = run_in_shards(parse_scenario(TROUBLE), 7, 2, home=tmp_path)

    assert msgspec.structs.replace(again, wall_s=0.0) == msgspec.structs.replace(report, wall_s=0.0)


def test_a_scenario_with_expectations_is_left_to_one_process() -> None:
    with pytest.raises(SpecError, match="--jobs"):
        run_in_shards(find("outage-at-a-high-rate"), 1, 2)


class Begun(Exception):
    """A run was about to begin."""


@pytest.mark.parametrize(
    ("arguments", "processes"),
    [
        (["outage-72h"], 2),
        (["outage-72h", "--jobs", "1"], 1),
        (["outage-72h", "--log", "/dev/null"], 1),
        (["outage-2h"], 1),
        (["outage-2h", "--jobs", "3"], 3),
    ],
)
def test_a_long_run_takes_two_processes_unless_it_is_told(
    arguments: list[str], processes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def begin(scenario: Scenario, seed: int, jobs: int = 1, **_: object) -> None:
        raise Begun(jobs)

    monkeypatch.setattr("twin.faithful.shards.run_in_shards", begin)
    monkeypatch.setattr("twin.faithful.run.run_scenario", begin)

    result = CliRunner().invoke(app, ["twin", "run", *arguments])

    assert isinstance(result.exception, Begun)
    assert result.exception.args == (processes,)


@pytest.mark.chaos
@pytest.mark.parametrize(("how", "leaves"), [(signal.SIGTERM, 0), (signal.SIGKILL, 1)])
def test_a_run_that_is_stopped_leaves_no_worker_behind_nor_its_files_unless_it_is_killed(
    tmp_path: Path, how: signal.Signals, leaves: int
) -> None:
    command = [sys.executable, "-m", "skerry.cli", "twin", "run", "outage-2h", "--jobs", "2"]
    said = tmp_path / "said"
    home = tmp_path / "home"
    home.mkdir()
    with said.open("wb") as file:
        run = subprocess.Popen(
            command, env={**os.environ, "TMPDIR": str(home)}, stdout=file, stderr=subprocess.STDOUT
        )
    deadline = time.monotonic() + 60
    while not list(home.glob("*/worker-*/*")):
        assert run.poll() is None, said.read_text()
        assert time.monotonic() < deadline, "no worker comes up"
        time.sleep(0.05)  # another process gets under way; polled with a deadline
    family = psutil.Process(run.pid).children(recursive=True)
    assert len(family) >= 2

    run.send_signal(how)
    run.wait(60)

    assert psutil.wait_procs(family, timeout=60)[1] == []
    assert len(list(home.iterdir())) == leaves
    assert "Traceback" not in said.read_text()
