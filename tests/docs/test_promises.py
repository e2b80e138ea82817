"""The page of promises names tests that exist, and leaves no kind of fault without one."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "queue-promises.md"
LINK = re.compile(r"\[(\w+)\]\(([^)]+\.py)\)")


def rows() -> list[list[str]]:
    """Return the cells of the rows that promise something."""
    table = PAGE.read_text(encoding="utf-8").partition("| kind of fault |")[2]
    lines = [line for line in table.splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]
    return [row for row in cells if not row[0].startswith("**")]


@pytest.mark.parametrize("row", rows(), ids=lambda row: row[0])
def test_each_promise_is_held_by_tests_that_exist(row: list[str]) -> None:
    named = LINK.findall(row[2])

    assert len(row) == 3
    assert row[1]
    assert named, "no test is named"
    for name, path in named:
        tree = ast.parse((PAGE.parent / path).read_bytes())
        assert name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
