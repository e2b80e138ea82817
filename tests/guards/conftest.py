"""Which files the guards look at: those git tracks, or would track."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = (
    "skerry",
    "edge_agent",
    "cloud_coordinator",
    "federation",
    "devices",
    "policy",
    "twin",
    "queue/task_queue",
    "benchmarks",
)


@pytest.fixture(scope="session")
def project_files() -> tuple[Path, ...]:
    """Every file of the project that is not ignored, in a stable order."""
    listing = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    files = (ROOT / name for name in sorted(set(listing.stdout.split("\0"))) if name)
    return tuple(file for file in files if file.is_file())


@pytest.fixture(scope="session")
def python_files(project_files: tuple[Path, ...]) -> tuple[Path, ...]:
    """Every Python file of the project, tests and tools among them."""
    return tuple(file for file in project_files if file.suffix == ".py")


@pytest.fixture(scope="session")
def package_modules(python_files: tuple[Path, ...]) -> tuple[Path, ...]:
    """Every Python module of the packages, without tests and tools."""
    roots = tuple(ROOT / name for name in PACKAGES)
    return tuple(file for file in python_files if any(root in file.parents for root in roots))
