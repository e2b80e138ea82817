"""A copy of the product with one bug planted in it, and the search let loose on the copy. Knows no bug."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
PATCHES = sorted((Path(__file__).parent / "planted").glob("*.patch"))
#: What a fleet in the twin runs.
PARTS = ("skerry", "queue", "devices", "policy", "federation", "edge_agent", "cloud_coordinator", "twin")


def copy_product(into: Path) -> Path:
    """Copy what the twin runs, by links where files are not changed; return the copy."""
    for part in PARTS:
        shutil.copytree(
            ROOT / part, into / part, copy_function=os.link, ignore=shutil.ignore_patterns("__pycache__")
        )
    return into


def apply_patch(patch: Path, copy: Path, *, only_check: bool = False) -> str:
    """Apply a patch to a copy; return what stands against it, empty when it applies."""
    done = subprocess.run(
        ["git", "apply", *(["--check"] if only_check else []), str(patch)],
        cwd=copy,
        env={**os.environ, "GIT_CEILING_DIRECTORIES": str(copy.parent)},
        capture_output=True,
        text=True,
    )
    return done.stderr.strip()


def search(copy: Path, *, most: int, seconds: float, seed: int) -> dict[str, Any]:
    """Let the search run in a copy; return what it says."""
    command = ["skerry.cli", "twin", "fuzz", "--json", "--no-shrink", "--seed", str(seed)]
    done = subprocess.run(
        [sys.executable, "-m", *command, "--most", str(most), "--seconds", str(seconds)],
        cwd=copy,
        env={**os.environ, "PYTHONPATH": f"{copy}{os.pathsep}{copy / 'queue'}"},
        capture_output=True,
        text=True,
    )
    assert done.returncode in (0, 1), done.stderr[-2000:]
    found: dict[str, Any] = json.loads(done.stdout)
    return found
