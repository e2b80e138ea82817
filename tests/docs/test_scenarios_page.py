"""The page about scenarios is what its tool makes of the scenarios that ship."""

from __future__ import annotations

import runpy
from pathlib import Path

TOOL = Path(__file__).parents[2] / "tools" / "scenarios_page.py"


def test_the_page_is_up_to_date() -> None:
    tool = runpy.run_path(str(TOOL))

    assert tool["PAGE"].read_text(encoding="utf-8") == tool["page"](), f"run python {TOOL.name}"
