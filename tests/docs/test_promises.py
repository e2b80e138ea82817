"""The pages of promises name tests that exist, and leave no promise without one."""

from __future__ import annotations

import ast
import re
from itertools import takewhile
from pathlib import Path

import pytest

from twin.scenario.library import names

EXPLANATION = Path(__file__).parents[2] / "docs" / "explanation"
#: Page and the head of its table's first column.
PAGES = (("queue-promises.md", "kind of fault"), ("promises.md", "promise"))
MET = "kind of fault | scenario"
SCENARIO = re.compile(r"\[([\w-]+)\]\([./]+/twin/scenario/library/\1\.toml\)")
LINK = re.compile(r"\[(\w+)\]\(([^)]+\.py)\)")


def rows(page: str, head: str) -> list[list[str]]:
    """Return the cells of the rows that promise something; the last one names the tests."""
    table = (EXPLANATION / page).read_text(encoding="utf-8").partition(f"| {head} |")[2]
    lines = list(takewhile(lambda line: line.startswith("|"), ("|" + table).splitlines()))
    cells = [[cell.strip() for cell in line[1:-1].split("|")] for line in lines[1:]]
    return [row for row in cells if not row[0].startswith(("**", "---"))]


EVERY_ROW = [pytest.param(row, id=f"{page}: {row[0]}") for page, head in PAGES for row in rows(page, head)]


@pytest.mark.parametrize("row", EVERY_ROW)
def test_each_promise_is_held_by_tests_that_exist(row: list[str]) -> None:
    assert len(row) in (2, 3)
    assert all(row)
    assert LINK.findall(row[-1]), "no test is named"
    assert_tests_exist(row[-1])


@pytest.mark.parametrize("row", [pytest.param(row, id=row[0]) for row in rows("promises.md", MET)])
def test_each_fault_that_people_met_is_shown_or_the_reason_why_not_is_given(row: list[str]) -> None:
    _, scenarios, tests = row

    assert SCENARIO.search(scenarios) or (scenarios.startswith("none: ") and tests)
    assert_tests_exist(tests)


def test_every_scenario_that_ships_shows_a_fault_that_people_met() -> None:
    table = " ".join(scenarios for _, scenarios, _ in rows("promises.md", MET))

    assert sorted(set(SCENARIO.findall(table))) == list(names())


def assert_tests_exist(cell: str) -> None:
    for name, path in LINK.findall(cell):
        tree = ast.parse((EXPLANATION / path).read_bytes())
        assert name in {
            node.name
            for node in tree.body
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        }


def test_every_law_has_promises() -> None:
    page = (EXPLANATION / "promises.md").read_text(encoding="utf-8")

    assert [law for law in range(1, 12) if f"| **Law {law}:" not in page] == []
