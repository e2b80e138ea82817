"""What the agent and the coordinator import of federation brings neither Flower nor torch with it."""

from __future__ import annotations

import subprocess
import sys

import pytest

LIGHT = (
    "federation.values",
    "federation.wire",
    "federation.admission",
    "federation.trainer",
    "federation.rounds.service",
    "federation.rounds.sqlite",
    "federation.rounds.testing",
)


@pytest.mark.parametrize("module", LIGHT)
def test_a_light_module_imports_no_framework(module: str) -> None:
    heavy = "{'flwr', 'torch', 'ray', 'grpc'} & {name.partition('.')[0] for name in sys.modules}"
    probe = f"import sys, {module}; print(sorted({heavy}))"

    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "[]"
