"""What the demo's live view says of each node, and where the demo may keep its files."""

from __future__ import annotations

import io
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from rich.console import Console

from skerry.cli.demo.story import PLANS
from skerry.cli.demo.view import View
from skerry.cli.demo.watching import Sample

UP = Sample(is_up=True, link="up", waiting=120, outbox=120, done=120)


def picture(samples: dict[str, Sample], cut: set[str]) -> list[str]:
    """The live table as text on a terminal of 80 columns."""
    view = View(io.StringIO(), {plan.name: plan for plan in PLANS})
    view.follow(SimpleNamespace(samples=samples), cut)  # type: ignore[arg-type]
    shown = io.StringIO()
    Console(file=shown, width=80).print(view._draw())
    return shown.getvalue().splitlines()


def test_a_node_without_a_network_is_cut_off_though_it_has_not_noticed() -> None:
    lines = picture({plan.name: UP for plan in PLANS}, {"quay-2"})

    told = {line.split()[0]: "cut off" in line for line in lines if line.startswith(("quay", "reef"))}
    assert told == {"quay-1": False, "quay-2": True, "reef-1": False, "reef-2": False}


def test_the_table_has_the_same_lines_whatever_the_links_do() -> None:
    calm = picture({plan.name: UP for plan in PLANS}, set())
    stormy = picture({"quay-1": Sample()}, {"quay-2", "reef-2"})

    assert len(calm) == len(stormy) == len(PLANS) + 4  # title, columns, rule; no story yet
    assert max(map(len, calm)) <= 80


def test_the_demo_leaves_a_directory_with_other_files_alone(skerry: Any, tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("mine")

    result = skerry("demo", "--keep", str(tmp_path))

    assert result.exit_code == 2
    assert "not empty" in result.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_paragraphs_of_the_help_fill_their_lines(skerry: Any) -> None:
    prose, example, _ = skerry("demo", "--help").output.partition("Example:")

    assert example
    lines = [line.strip() for line in prose.splitlines()]
    assert [line for line, after in pairwise(lines) if after and 0 < len(line) < 50] == []
