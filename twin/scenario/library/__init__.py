"""The scenarios that ship: one file each, named after the kind of fault it shows."""

from __future__ import annotations

import difflib
from importlib import resources
from pathlib import Path

from skerry.errors import SpecError
from twin.scenario.language import Scenario, load_scenario, parse_scenario


def names() -> tuple[str, ...]:
    """Return the names of the scenarios that ship."""
    files = resources.files(__name__).iterdir()
    return tuple(sorted(entry.name[:-5] for entry in files if entry.name.endswith(".toml")))


def find(name: str) -> Scenario:
    """Return a scenario that ships, or the one in a file.  Raises SpecError that names the nearest one."""
    if name in names():
        text = (resources.files(__name__) / f"{name}.toml").read_text(encoding="utf-8")
        return parse_scenario(text, source=name)
    if name.endswith(".toml") or "/" in name:
        return load_scenario(Path(name))
    near = difflib.get_close_matches(name, names(), n=1)
    hint = f" Did you mean {near[0]}?" if near else " `skerry twin list` shows those that ship."
    raise SpecError(f"there is no scenario {name!r}.{hint}")
