"""The command line against a real coordinator: push, list, start, and what each refusal says."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from policy.linear import write_linear
from skerry.identity import PrivateKey
from skerry.policy_manifest import EvaluationSummary
from tests.rollout.fleet import a_comparison

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_S = 90.0
KEY = PrivateKey.generate()
CLAIM = EvaluationSummary(seed=1, comparisons=(a_comparison(),))


def skerry(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "skerry.cli", *words]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_S)


@pytest.fixture
def config(tmp_path: Path) -> Iterator[str]:
    """The settings file of a coordinator that runs; no broker, no nodes."""
    data = tmp_path / "data"
    file = tmp_path / "coordinator.toml"
    values = {
        "data_dir": str(data), "api.listen": "", "mqtt.url": "mqtt://127.0.0.1:1", "rules.enabled": False,
        "policies.signers": [KEY.public_hex], "policies.against": "full-cost", "policies.devices": "2",
        "policies.scenarios": 2, "policies.beats_below": 10.0,
    }  # fmt: skip
    file.write_text("".join(f"{name} = {json.dumps(value)}\n" for name, value in values.items()))
    command = [sys.executable, "-m", "cloud_coordinator", "--config", str(file)]
    process = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + PATIENCE_S
        while not (data / "coordinator.sock").exists():
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.05)  # polling another process
        yield str(file)
    finally:
        process.terminate()
        process.wait(PATIENCE_S)


def test_a_version_is_pushed_and_listed_and_a_rollout_says_what_is_missing(
    config: str, tmp_path: Path
) -> None:
    papers = write_linear(tmp_path / "good.onnx", {"increase": -1.0}, key=KEY, evaluation=CLAIM)
    where = ("--config", config)

    pushed = skerry("policy", "push", str(tmp_path / "good.onnx"), *where, "--json")
    assert pushed.returncode == 0, pushed.stderr
    assert json.loads(pushed.stdout)["state"] == "ready"

    listed = skerry("rollout", "policies", *where)
    assert listed.stdout.splitlines()[1].startswith(f"{papers.version}\tready\t")

    begun = skerry("rollout", "start", papers.version[:6], *where)
    assert (begun.returncode, "0 nodes are connected" in begun.stderr) == (5, True)
    unknown = skerry("rollout", "show", "r-0", *where)
    assert (unknown.returncode, "there is no rollout 'r-0'" in unknown.stderr) == (3, True)
    wrong = skerry("rollout", "start", papers.version, "--gate", "blocks", *where)
    assert (wrong.returncode, "NAME=NUMBER" in wrong.stderr) == (2, True)


def test_an_unsigned_version_and_one_without_numbers_are_refused(config: str, tmp_path: Path) -> None:
    write_linear(tmp_path / "unsigned.onnx", {"finish": -1.0}, key=None, evaluation=CLAIM)
    write_linear(tmp_path / "nan.onnx", {"finish": float("nan")}, key=KEY, evaluation=CLAIM)

    unsigned = skerry("policy", "push", str(tmp_path / "unsigned.onnx"), "--config", config)
    assert (unsigned.returncode, "the manifest is not signed" in unsigned.stderr) == (5, True)
    broken = skerry("policy", "push", str(tmp_path / "nan.onnx"), "--config", config)
    assert (broken.returncode, "not all numbers" in broken.stderr) == (5, True)
