"""Settings and scenarios that the how-to guides show are taken by agent, coordinator and twin."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from cloud_coordinator.settings import CoordinatorSettings
from edge_agent.settings import AgentSettings, check_settings
from skerry.settings import load_settings
from twin.scenario.language import parse_scenario

GUIDES = Path(__file__).resolve().parents[2] / "docs" / "how-to"
ALL = [
    pytest.param(example, id=f"{page.stem}-{number}")
    for page in sorted(GUIDES.glob("*.md"))
    for number, example in enumerate(re.findall(r"^```toml\n(.*?)^```$", page.read_text(), re.M | re.S))
]
#: Tables that only a coordinator has.
CLOUD = re.compile(r"^\[(policies|federation|placement|advertise)\]", re.MULTILINE)
#: Tables that only a scenario of the twin has.
SCENARIO = re.compile(r"^\[\[group\]\]", re.MULTILINE)
CLOUD_EXAMPLES = [one for one in ALL if CLOUD.search(str(one.values[0]))]
SCENARIOS = [one for one in ALL if SCENARIO.search(str(one.values[0]))]
EXAMPLES = [one for one in ALL if one not in CLOUD_EXAMPLES + SCENARIOS]


@pytest.mark.parametrize("example", EXAMPLES)
def test_the_agent_takes_the_settings_of_the_guides(example: str, tmp_path: Path) -> None:
    config = tmp_path / "agent.toml"
    config.write_text(example)

    settings = check_settings(load_settings(AgentSettings, path=config))

    assert settings != AgentSettings()


@pytest.mark.parametrize("example", CLOUD_EXAMPLES)
def test_the_coordinator_takes_the_settings_of_the_guides(example: str, tmp_path: Path) -> None:
    config = tmp_path / "coordinator.toml"
    config.write_text(example)

    settings = load_settings(CoordinatorSettings, path=config)

    assert settings != CoordinatorSettings()


@pytest.mark.parametrize("example", SCENARIOS)
def test_the_twin_takes_the_scenarios_of_the_guides(example: str) -> None:
    assert parse_scenario(example).group


def test_there_are_examples_to_try() -> None:
    assert len(EXAMPLES) >= 3
    assert SCENARIOS
