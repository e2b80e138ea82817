"""The policy files of the round demo: the shipped one to begin with, and three that must not stay."""

from __future__ import annotations

import shutil
from pathlib import Path

from policy.linear import write_linear
from policy.shipped import SHIPPED_FILE
from skerry.identity import PrivateKey
from skerry.policy_manifest import (
    Comparison,
    EvaluationSummary,
    decode_manifest,
    encode_manifest,
    manifest_path,
    sign_manifest,
)

#: What the worse policy claims of itself; the registry does not take its word.
_BOAST = EvaluationSummary(
    seed=1,
    comparisons=(
        Comparison(
            devices=8,
            scenarios=200,
            against="min-increase",
            cost=0.1,
            other_cost=0.2,
            ratio=0.5,
            low=0.45,
            high=0.55,
            wins=0.99,
        ),
    ),
)


def signed_shipped(directory: Path, key: PrivateKey) -> Path | None:
    """Return a copy of the shipped policy with papers signed by the operator; None when none ships."""
    if not SHIPPED_FILE.exists():
        return None
    copy = directory / "shipped.onnx"
    shutil.copyfile(SHIPPED_FILE, copy)
    papers = decode_manifest(manifest_path(SHIPPED_FILE).read_bytes())
    manifest_path(copy).write_bytes(encode_manifest(sign_manifest(papers, key)))
    return copy


def write_not_a_number(directory: Path, key: PrivateKey) -> Path:
    """Return a policy with a weight that is not a number, its papers in order."""
    path = directory / "not-a-number.onnx"
    write_linear(path, {"increase": -1.0, "service": float("nan")}, key=key, evaluation=_BOAST)
    return path


def write_unsigned(directory: Path) -> Path:
    """Return a sound policy that nobody signed: it does as min-increase."""
    path = directory / "unsigned.onnx"
    write_linear(path, {"increase": -1.0}, key=None)
    return path


def write_worse(directory: Path, key: PrivateKey) -> Path:
    """Return a policy in good order that always prefers the device on which the task takes longest."""
    path = directory / "slowest-device.onnx"
    write_linear(path, {"service": 1.0}, key=key, evaluation=_BOAST)
    return path
