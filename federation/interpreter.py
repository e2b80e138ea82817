"""Where the interpreter of the training environment is. Owns the rule; starts nothing."""

from __future__ import annotations

import os
from pathlib import Path

import federation

#: The setting's word for: there shall be none.
OFF = "off"


def find_interpreter(setting: str) -> tuple[Path | None, str]:
    """Return (interpreter, "") or (None, why there is none). An empty setting looks beside the program."""
    if setting == OFF:
        return None, "the setting python is off"
    beside = Path(federation.__file__).absolute().parents[1] / ".venv-train" / "bin" / "python"
    found = Path(setting).expanduser() if setting else beside
    if not os.access(found, os.X_OK):
        hint = "" if setting else ": `make test-train` makes one, or the setting python names another"
        return None, f"there is no training environment at {found}{hint}"
    return found.absolute(), ""
