"""The pages about rules and decisions name exactly what the code knows."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from policy.filters import FILTER_NAMES, TEMPORARY_FILTERS
from policy.guard.facts import known_paths
from policy.guard.lint import FORBIDDEN
from policy.guard.metadata import Enforcement
from policy.guard.sources import read_rules

DOCS = Path(__file__).resolve().parents[2] / "docs"
RULES = (DOCS / "reference" / "rules.md").read_text()
EXPLAINED = (DOCS / "explanation" / "decisions-explained.md").read_text()


def test_every_fact_is_in_the_reference_and_nothing_else() -> None:
    known = known_paths()
    leaves = {path for path in known if not any(other.startswith(f"{path}.") for other in known)}

    assert set(re.findall(r"^\| `input\.([\w.]+)` \|", RULES, re.MULTILINE)) == leaves


def test_every_filter_is_explained_with_whether_it_passes() -> None:
    rows = re.findall(r"^\| (`.+?) \| .+ \| (yes|no) \|$", EXPLAINED, re.MULTILINE)
    explained = {name: passes for names, passes in rows for name in re.findall(r"`([\w-]+)`", names)}

    assert set(explained) == FILTER_NAMES
    assert {name for name, passes in explained.items() if passes == "yes"} == TEMPORARY_FILTERS


@pytest.mark.parametrize("name", [*FORBIDDEN, *read_rules().enforcements, *Enforcement.__args__])
def test_every_shipped_rule_enforcement_and_forbidden_function_is_named(name: str) -> None:
    assert f"`{name.rstrip('.')}" in RULES
