"""Which Python trains: one with torch, apart from the one that runs services. Finds it and becomes it."""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import NoReturn

from skerry.errors import SettingsError

VARIABLE = "SKERRY_TRAIN_PYTHON"
BESIDE = Path(".venv-train/bin/python")
_ROOT = Path(__file__).resolve().parents[2]


def training_python() -> Path:
    """Return the interpreter: the environment's, this one if it has torch, or the project's own beside it.

    Raises SettingsError that says what to install.
    """
    if named := os.environ.get(VARIABLE):
        if not os.access(named, os.X_OK):
            raise SettingsError(f"{VARIABLE} names {named}, which is no program")
        return Path(named)
    if find_spec("torch") is not None:
        return Path(sys.executable)
    if os.access(_ROOT / BESIDE, os.X_OK):
        return _ROOT / BESIDE
    raise SettingsError(
        "training needs torch, which is not installed here. Make an environment for it in the checkout:\n"
        "  python3 -m venv .venv-train\n"
        "  .venv-train/bin/pip install -c constraints/cloud.txt -e '.[train,federation]'\n"
        f"or name the interpreter of one in {VARIABLE}"
    )


def become_trainer(words: list[str]) -> NoReturn:
    """Replace this process with `python -m federation.ppo <words>` of the training interpreter."""
    python = str(training_python())
    sys.stdout.flush()
    os.execv(python, [python, "-P", "-m", "federation.ppo", *words])
