"""The tables of the page about the queue's performance are what its tool makes of the record."""

from __future__ import annotations

import json
import runpy
from pathlib import Path

TOOL = Path(__file__).parents[2] / "tools" / "queue_tables.py"


def test_the_tables_are_those_of_the_record() -> None:
    tool = runpy.run_path(str(TOOL))
    record = json.loads(tool["RECORD"].read_text())
    found = {result["id"].removeprefix("queue."): result for result in record["results"]}
    text = tool["PAGE"].read_text(encoding="utf-8")

    assert text == tool["page"](text, found), f"run python {TOOL.name}"
