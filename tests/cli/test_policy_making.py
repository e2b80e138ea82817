"""`skerry policy train|evaluate|show`: what is said of a policy, and of what is missing to make one."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from policy.shipped import SHIPPED_FILE
from skerry.cli import training
from skerry.policy_manifest import decode_manifest, encode_manifest, manifest_path


def test_show_says_where_the_shipped_policy_comes_from(skerry: Any) -> None:
    result = skerry("policy", "show")

    assert result.exit_code == 0, result.output
    manifest = decode_manifest(manifest_path(SHIPPED_FILE).read_bytes())
    for words in (manifest.version, manifest.lineage.command, "known by its hash", "this program's"):
        assert words in result.output
    assert "min-increase" in result.output


def test_show_prints_the_manifest_for_programs(skerry: Any) -> None:
    shown = json.loads(skerry("policy", "show", "--json").output)

    assert shown["file_hash"] == decode_manifest(manifest_path(SHIPPED_FILE).read_bytes()).file_hash


def test_evaluate_judges_on_the_sizes_asked_for(skerry: Any) -> None:
    result = skerry("policy", "evaluate", "--devices", "3", "--scenarios", "2", "--json")

    found = json.loads(result.stdout)
    assert [(one["devices"], one["against"]) for one in found["evaluation"]["comparisons"]] == [
        (3, "full-cost"),
        (3, "min-increase"),
    ]


def test_a_file_that_does_not_pass_is_not_judged(skerry: Any, tmp_path: Path) -> None:
    path = tmp_path / "cut.onnx"
    path.write_bytes(SHIPPED_FILE.read_bytes()[:-1])
    manifest_path(path).write_bytes(
        encode_manifest(decode_manifest(manifest_path(SHIPPED_FILE).read_bytes()))
    )

    result = skerry("policy", "evaluate", str(path))

    assert result.exit_code == 5
    assert "is refused (hash)" in result.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("show", "none.onnx"), "there is no manifest none.manifest.json"),
        (("evaluate", "--devices", "eight"), "--devices takes numbers from 2 to 256"),
    ],
)
def test_a_mistake_is_named(skerry: Any, words: tuple[str, ...], said: str) -> None:
    result = skerry("policy", *words)

    assert result.exit_code == 2
    assert said in result.stderr


def test_without_torch_train_says_what_to_install(
    skerry: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv(training.VARIABLE, raising=False)
    monkeypatch.setattr(training, "_ROOT", tmp_path)
    monkeypatch.setattr(training, "find_spec", lambda name: None)

    result = skerry("policy", "train", "--out", "run")

    assert result.exit_code == 2
    assert "pip install -c constraints/cloud.txt -e '.[train,federation]'" in result.stderr


def test_an_interpreter_that_is_none_is_named(skerry: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(training.VARIABLE, "/nowhere/python")

    result = skerry("policy", "train", "--out", "run")

    assert result.exit_code == 2
    assert "/nowhere/python, which is no program" in result.stderr


def test_training_runs_in_the_interpreter_that_is_named(
    skerry: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    called: list[list[str]] = []
    python = tmp_path / "python"
    python.touch(mode=0o755)
    monkeypatch.setenv(training.VARIABLE, str(python))

    def become(path: str, words: list[str]) -> None:
        called.append(words)

    monkeypatch.setattr(os, "execv", become)

    skerry("policy", "train", "--out", "run", "--seed", "3", "--steps", "9", "--resume", "--key", "k.pem")
    skerry("policy", "export", "run", "--out", "x.onnx", "--scenarios", "0")

    start = [str(python), "-P", "-m", "federation.ppo"]
    train = "train --out run --scenarios 200 --seed 3 --steps 9 --resume --key k.pem"
    assert called == [start + train.split(), [*start, "export", "run", "--out", "x.onnx", "--scenarios", "0"]]
