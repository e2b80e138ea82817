"""Federated runs in the twin: the real round service, courier, admission and agents; training is emulated."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from federation.values import ReplyState
from skerry.errors import SpecError
from twin.faithful.run import Report, run_scenario
from twin.faithful.shards import run_in_shards
from twin.faithful.staging import Stage
from twin.scenario.language import Scenario, parse_scenario

AWAY = """
name = "away"
load_s = 900
settle_s = 120

[[group]]
name = "edge"
count = 3

[[load]]
rate_per_s = 0.02

[[round]]
name = "first"
at_s = 10
rounds = 3
quorum = 2
deadline_s = 200
max_staleness = 3

[[fault]]
kind = "cut"
on = "edge-3"
at_s = 20
for_s = 450
"""


def away(**changes: object) -> Scenario:
    """The scenario with other values for its one round."""
    scenario = parse_scenario(AWAY)
    return msgspec.structs.replace(scenario, round=(msgspec.structs.replace(scenario.round[0], **changes),))


class Seen:
    """What became of each instruction: (node, version) → state, version that it counted in, weight, code."""

    def __init__(self) -> None:
        self.replies: dict[tuple[str, int], tuple[ReplyState, int | None, float, str]] = {}

    def __call__(self, stage: Stage) -> None:
        assert stage.cloud.office is not None
        service = stage.cloud.office.rounds.service_if_begun()
        assert service is not None
        for entry in service.office.ledger.entries("first"):
            key = entry.instruction.node, entry.instruction.version
            self.replies[key] = entry.state, entry.counted_in, entry.weight, entry.code


@pytest.fixture(scope="module")
def seen() -> Seen:
    return Seen()


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory, seen: Seen) -> Report:
    return run_scenario(away(), 3, home=tmp_path_factory.mktemp("away"), inspect=seen)


def test_a_run_goes_on_without_a_node_that_is_away(report: Report) -> None:
    (run,) = report.rounds

    assert (run.state, run.version) == ("done", 3)
    assert (report.lost, report.violations) == (0, 0)


def test_a_node_that_comes_back_is_counted_with_its_staleness_weight(report: Report, seen: Seen) -> None:
    state, counted_in, weight, _ = seen.replies["edge-3", 0]

    assert state is ReplyState.ACCEPTED
    assert counted_in is not None
    assert counted_in > 1
    assert 0 < weight < 1
    assert report.rounds[0].late == 1


def test_of_instructions_that_waited_for_it_only_the_newest_is_trained(seen: Seen) -> None:
    later = [seen.replies["edge-3", version] for version in (1, 2) if ("edge-3", version) in seen.replies]

    assert [code for *_, code in later[:-1]] == ["superseded"] * (len(later) - 1)
    assert later[-1][0] is ReplyState.ACCEPTED


def test_a_reply_that_is_too_stale_is_refused_with_the_reason(tmp_path: Path) -> None:
    report = run_scenario(away(max_staleness=0), 3, home=tmp_path)

    (run,) = report.rounds
    assert (run.state, run.late) == ("done", 0)
    assert "stale" in " ".join(run.refused)


def test_a_run_survives_a_killed_coordinator_and_killed_nodes(tmp_path: Path) -> None:
    text = (
        AWAY.replace("for_s = 450", "for_s = 60")
        + """
[[fault]]
kind = "coordinator_kill"
at_s = 30
times = 3
every_s = 50

[[fault]]
kind = "agent_kill"
on = "edge-1"
at_s = 25
times = 4
every_s = 35
"""
    )
    report = run_scenario(parse_scenario(text), 5, home=tmp_path)

    assert report.rounds[0].state == "done"
    assert report.rounds[0].accepted >= 6
    assert (report.lost, report.violations) == (0, 0)


def test_the_same_seed_gives_the_same_run(report: Report, tmp_path: Path) -> None:
    again = run_scenario(away(), 3, home=tmp_path)

    assert (again.log_hash, again.rounds) == (report.log_hash, report.rounds)


def test_rounds_take_one_process() -> None:
    with pytest.raises(SpecError, match="--jobs"):
        run_in_shards(away(), 1, 2)
