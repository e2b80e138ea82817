"""The pages of promises name tests that exist, and leave no promise without one."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

EXPLANATION = Path(__file__).parents[2] / "docs" / "explanation"
#: Page and the head of its table's first column.
PAGES = (("queue-promises.md", "kind of fault"), ("promises.md", "promise"))
LINK = re.compile(r"\[(\w+)\]\(([^)]+\.py)\)")


def rows(page: str, head: str) -> list[list[str]]:
    """Return the cells of the rows that promise something; the last one names the tests."""
    table = (EXPLANATION / page).read_text(encoding="utf-8").partition(f"| {head} |")[2]
    lines = [line for line in table.splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[1:]]
    return [row for row in cells if not row[0].startswith(("**", "---"))]


EVERY_ROW = [pytest.param(row, id=f"{page}: {row[0]}") for page, head in PAGES for row in rows(page, head)]


@pytest.mark.parametrize("row", EVERY_ROW)
def test_each_promise_is_held_by_tests_that_exist(row: list[str]) -> None:
    named = LINK.findall(row[-1])

    assert len(row) in (2, 3)
    assert all(row)
    assert named, "no test is named"
    for name, path in named:
        tree = ast.parse((EXPLANATION / path).read_bytes())
        assert name in {
            node.name
            for node in tree.body
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        }


def test_every_law_has_promises() -> None:
    page = (EXPLANATION / "promises.md").read_text(encoding="utf-8")

    assert [law for law in range(1, 12) if f"| **Law {law}:" not in page] == []
