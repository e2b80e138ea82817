"""The page about settings shows what `skerry agent init` and its sister command write, to the letter."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from cloud_coordinator import settings as cloud
from edge_agent import settings as edge

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "settings.md").read_text()


@pytest.mark.parametrize(
    ("number", "example_toml"),
    [pytest.param(0, edge.example_toml, id="agent"), pytest.param(1, cloud.example_toml, id="coordinator")],
)
def test_every_setting_is_on_the_page_with_its_default(number: int, example_toml: Callable[[], str]) -> None:
    shown = re.findall(r"^```toml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)

    written = example_toml().replace(json.dumps(sys.executable), '"python"')  # differs by machine
    assert shown[number].split("\n") == written.split("\n")
