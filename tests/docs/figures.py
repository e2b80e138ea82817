"""What the page about figures for monitors says, and what a process shows, in one form to compare."""

from __future__ import annotations

import re
from pathlib import Path

from prometheus_client import CollectorRegistry

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "metrics.md"
_ROW = re.compile(r"^\| `(\w+)` \|([^|]*)\| \S", re.MULTILINE)


def on_the_page(prefix: str) -> dict[str, set[str]]:
    """Return the labels of each figure of one process, by name."""
    rows = _ROW.findall(PAGE.read_text())
    return {name: set(re.findall(r"`(\w+)`", labels)) for name, labels in rows if name.startswith(prefix)}


def shown(registry: CollectorRegistry, prefix: str) -> dict[str, set[str]]:
    """Return the figures that a monitor is shown, by name, with the labels that their values have so far."""
    families = [family for family in registry.collect() if family.name.startswith(prefix)]
    return {
        f"{family.name}_total" if family.type == "counter" else family.name: {
            label for sample in family.samples for label in sample.labels
        }
        - {"le"}
        for family in families
    }
