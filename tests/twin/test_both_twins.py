"""One scenario on both twins: the array engine finds what the real agents do, within a stated tolerance."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from policy.baselines.registry import make_scheduler
from skerry.cli import app
from twin.faithful.run import run_scenario
from twin.faithful.staging import LOAD_BEGINS_S, Stage
from twin.fleet.of_scenario import run_on_fleet
from twin.scenario.language import parse_scenario

#: Two devices with two slots each, eight tenths of them at work: queues form, and the order in them matters.
BUSY = """
name = "busy"
load_s = 240
settle_s = 120

[[group]]
name = "edge"
devices = ["cpu", "gpu"]
slots = 2

[[load]]
arrival = "poisson"
rate_per_s = 4.0
runtime_s = [0.2, 1.4]
{fault}
"""
CUT = """
[[fault]]
kind = "cut"
at_s = 0
for_s = 300
"""
#: What a commit before a start and one at an end take of a task's time at a real agent, and what is drawn
#: differently between two ways to break a tie in a queue.
TOLERANCE = 0.15
MIN_INCREASE: Any = make_scheduler("min-increase")


def test_throughput_and_mean_completion_agree(tmp_path: Path) -> None:
    scenario = parse_scenario(BUSY.format(fault=CUT))
    lived: list[float] = []

    def look(stage: Stage) -> None:
        lived.append(stage.witness.lived_s / sum(stage.witness.ended.values()))

    real = run_scenario(scenario, 5, home=tmp_path, inspect=look)
    (arrays,) = run_on_fleet(scenario, 5, MIN_INCREASE, begin_s=LOAD_BEGINS_S)

    assert real.done == arrays.tasks
    assert arrays.mean_s == pytest.approx(lived[0], rel=TOLERANCE)
    assert arrays.mean_s > 0.9  # tasks take 0.8 s on average: they do wait
    assert arrays.busy == pytest.approx(4.0 * 0.8 / 4, rel=0.1)


def test_a_node_that_is_cut_off_has_no_link_and_another_has() -> None:
    crowded = BUSY.replace("rate_per_s = 4.0", "rate_per_s = 8.0").replace("load_s = 240", "load_s = 30")

    (alone,) = run_on_fleet(parse_scenario(crowded.format(fault=CUT)), 5, MIN_INCREASE)
    (linked,) = run_on_fleet(parse_scenario(crowded.format(fault="")), 5, MIN_INCREASE)

    assert alone.offloaded == 0
    assert linked.offloaded > 0
    assert linked.mean_s < alone.mean_s


def test_what_needs_an_accelerator_waits_for_one() -> None:
    text = BUSY.format(fault=CUT).replace("load_s = 240", "load_s = 30")
    for_all = parse_scenario(text)
    for_gpu = parse_scenario(text.replace("rate_per_s = 4.0", 'rate_per_s = 4.0\nneeds = "gpu"'))

    (anywhere,) = run_on_fleet(for_all, 5, MIN_INCREASE)
    (narrow,) = run_on_fleet(for_gpu, 5, MIN_INCREASE)

    assert narrow.mean_s > 2 * anywhere.mean_s
    assert narrow.busy < anywhere.busy


def test_the_command_line_runs_a_scenario_on_the_array_engine(tmp_path: Path) -> None:
    file = tmp_path / "busy.toml"
    file.write_text(BUSY.format(fault=CUT))

    result = CliRunner().invoke(app, ["twin", "run", str(file), "--fleet"])

    assert result.exit_code == 0
    assert "edge" in result.stdout
