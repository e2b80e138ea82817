"""Rollouts in the twin: real rollout core, holders and gates; evaluating and running a policy is emulated."""

from __future__ import annotations

from pathlib import Path

import pytest

from twin.faithful.run import Report, run_scenario
from twin.faithful.staging import Stage
from twin.scenario.language import parse_scenario

FLEET = """
name = "rollout"
load_s = 400
settle_s = 120

[[group]]
name = "edge"
count = 3

[[load]]
rate_per_s = 0.05
"""
OFFER = """
[[rollout]]
version = "{version}"
at_s = {at_s}
canaries = ["edge-1"]
patience_s = 120
"""
CUT = """
[[fault]]
kind = "cut"
on = "{on}"
at_s = {at_s}
for_s = {for_s}
"""


class Held:
    """What each node runs at the end: node → policy (empty: the fallback) and its state."""

    def __init__(self) -> None:
        self.policies: dict[str, tuple[str, str]] = {}

    def __call__(self, stage: Stage) -> None:
        for name, node in stage.nodes.items():
            assert node.agent is not None
            status = node.agent.policy_status()
            self.policies[name] = status.policy, status.state


def run(text: str, tmp_path: Path) -> tuple[Report, Held]:
    held = Held()
    report = run_scenario(parse_scenario(text), 3, home=tmp_path, inspect=held)
    assert (report.lost, report.violations) == (0, 0)
    return report, held


def test_a_version_reaches_everybody_after_its_canary(tmp_path: Path) -> None:
    report, held = run(FLEET + OFFER.format(version="one", at_s=5), tmp_path)

    assert [(one.version, one.state) for one in report.rollouts] == [("one", "done")]
    assert len({policy for policy, _ in held.policies.values()}) == 1
    assert "" not in {policy for policy, _ in held.policies.values()}


def test_a_canary_that_goes_dark_halts_the_rollout_in_time(tmp_path: Path) -> None:
    cut = CUT.format(on="edge-1", at_s=1, for_s=300)

    report, held = run(FLEET + OFFER.format(version="one", at_s=30) + cut, tmp_path)

    (rollout,) = report.rollouts
    assert rollout.state == "rolled_back"
    assert "edge-1 was disconnected" in rollout.reason
    assert rollout.lasted_s == pytest.approx(120, abs=15)
    assert {policy for policy, _ in held.policies.values()} == {""}


def test_a_node_that_was_away_goes_straight_to_what_is_current(tmp_path: Path) -> None:
    cut = CUT.format(on="edge-3", at_s=1, for_s=300)
    offers = OFFER.format(version="one", at_s=20) + OFFER.format(version="two", at_s=150)
    fetched: list[str] = []

    def look(stage: Stage) -> None:
        content = stage.nodes["edge-3"].home / "content"
        fetched.extend(
            path.read_text() for path in content.rglob("*") if path.is_file() and path.stat().st_size < 10
        )

    report = run_scenario(parse_scenario(FLEET + offers + cut), 3, home=tmp_path, inspect=look)

    assert [(one.version, one.state) for one in report.rollouts] == [("one", "done"), ("two", "done")]
    assert "two" in fetched
    assert "one" not in fetched
    assert report.violations == 0
