"""The pinned versions cover what the project declares, and keep training frameworks off edge machines."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
HEAVY = {"torch", "flwr", "scipy", "pydantic", "tensorflow", "ray"}


def pins(name: str) -> dict[str, str]:
    """Exact versions by canonical name, from one file of constraints; hashes and comments left out."""
    lines = (ROOT / "constraints" / name).read_text().splitlines()
    pairs = (line.split(" ")[0].split("==") for line in lines if "==" in line and line[0].isalnum())
    return {canonicalize_name(package): version for package, version in pairs}


def declared(*extras: str) -> list[Requirement]:
    """What the project asks for with these extras."""
    optional = PROJECT["optional-dependencies"]
    return [
        Requirement(text) for text in (*PROJECT["dependencies"], *(r for e in extras for r in optional[e]))
    ]


@pytest.mark.parametrize(
    ("files", "extras"),
    [
        (["edge.txt", "rules.txt"], ["edge", "rules", "demo", "dev"]),
        (["cloud.txt"], ["edge", "cloud", "demo", "train", "federation"]),
    ],
)
def test_every_declared_package_has_an_exact_version_in_range(files: list[str], extras: list[str]) -> None:
    pinned = {package: version for file in files for package, version in pins(file).items()}
    for requirement in declared(*extras):
        version = pinned[canonicalize_name(requirement.name)]
        assert requirement.specifier.contains(version), f"{requirement} but {version} is pinned"


def test_no_heavy_framework_is_installed_on_an_edge_machine() -> None:
    assert HEAVY & pins("edge.txt").keys() == set()


def test_the_rule_engine_is_pinned_by_hash() -> None:
    text = (ROOT / "constraints" / "rules.txt").read_text()
    assert text.count("--hash=sha256:") == 2  # x86-64 and aarch64


def test_the_console_packages_are_the_same_on_both_sides() -> None:
    assert {n: pins("edge.txt")[n] for n in ("typer", "rich")} == {
        n: pins("cloud.txt")[n] for n in ("typer", "rich")
    }
