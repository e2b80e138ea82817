"""A training run: repeatable, resumable at any checkpoint, exported as what it is."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import federation.ppo.train as train_module
from federation.evaluation import figures
from federation.export import export_actor, papers_of, read_actor
from federation.ppo.__main__ import main
from federation.ppo.architecture import ACTOR_SHAPES, first_actor
from federation.ppo.checkpoint import CHECKPOINT_NAME, load, save
from federation.ppo.network import arrays_of, tensors_of
from federation.ppo.settings import VALIDATION_SEED, PpoSettings
from federation.ppo.train import TorchPolicy, TrainingRun, train
from policy.actor import Actor, admit
from skerry.errors import PolicyError, SettingsError
from skerry.policy_manifest import EvaluationSummary, Lineage
from twin.fleet.paired import HELD_OUT_SEED

ROOT = Path(__file__).resolve().parents[3]
TINY = PpoSettings(seed=5, steps=4 * 4 * 4 * 24, tasks=24, streams=4, copies=4, minibatch=128, devices=(3, 5))


@pytest.fixture(autouse=True)
def _small_curve(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(train_module, "POINT_DEVICES", (4,))
    monkeypatch.setattr(train_module, "POINT_SCENARIOS", 2)


def same(first: dict[str, np.ndarray], second: dict[str, np.ndarray]) -> bool:
    return all((first[name] == second[name]).all() for name in ACTOR_SHAPES)


def test_a_seed_makes_one_policy() -> None:
    runs = [TrainingRun(TINY), TrainingRun(TINY)]

    for run in runs:
        while not run.is_done:
            run.advance()

    first, second = (arrays_of(run.learner.actor) for run in runs)
    assert same(first, second)
    assert not same(first, first_actor(TINY.seed))


def test_a_resumed_run_ends_where_an_undisturbed_one_does(tmp_path: Path) -> None:
    undisturbed, broken = TrainingRun(TINY), TrainingRun(TINY)
    while not undisturbed.is_done:
        undisturbed.advance()
    broken.advance()
    broken.advance()
    save(tmp_path, broken.checkpoint())

    resumed = TrainingRun.resumed(load(tmp_path))
    while not resumed.is_done:
        resumed.advance()

    assert same(arrays_of(resumed.learner.actor), arrays_of(undisturbed.learner.actor))
    assert resumed.history == undisturbed.history


def test_a_run_reports_each_update_and_draws_its_curve(tmp_path: Path) -> None:
    told: list[int] = []
    run = TrainingRun(TINY)

    train(run, tmp_path, lambda one: told.append(one.update))

    assert told == [0, 1, 2, 3, 4]
    assert [point.update for point in run.curve] == [0, 4]
    assert run.curve[0].ratio[4] == 1.0  # it begins as min-increase
    assert load(tmp_path).update == 4


def test_a_checkpoint_of_other_code_is_not_gone_on_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(tmp_path, TrainingRun(TINY).checkpoint())
    monkeypatch.setattr(train_module, "code_hash", lambda: "sha256:other")

    with pytest.raises(SettingsError, match="code changed"):
        TrainingRun.resumed(load(tmp_path))


def test_a_damaged_checkpoint_is_named(tmp_path: Path) -> None:
    save(tmp_path, TrainingRun(TINY).checkpoint())
    file = tmp_path / CHECKPOINT_NAME
    file.write_bytes(file.read_bytes()[:-1000])

    with pytest.raises(PolicyError, match="not a checkpoint"):
        load(tmp_path)
    with pytest.raises(PolicyError, match="there is no checkpoint"):
        load(tmp_path / "elsewhere")


@pytest.mark.parametrize("seed", [HELD_OUT_SEED, VALIDATION_SEED])
def test_the_scenarios_of_the_judgement_are_never_trained_on(seed: int) -> None:
    with pytest.raises(SettingsError, match="kept for evaluation"):
        PpoSettings(seed=seed)


def test_the_exported_file_chooses_as_the_tensors_do() -> None:
    actor = first_actor(9)
    rng = np.random.default_rng(9)
    actor["score.weight"] = rng.standard_normal(actor["score.weight"].shape).astype(np.float32)
    exported = export_actor(actor)
    loaded = admit(exported.data, papers_of(exported, Lineage(), EvaluationSummary()))

    assert isinstance(loaded, Actor)
    assert exported.difference < 1e-4
    assert same(read_actor(exported.data), actor)
    in_torch = figures(TorchPolicy(tensors_of(actor)), 8, 6, seed=1)
    np.testing.assert_array_equal(figures(loaded, 8, 6, seed=1).cost, in_torch.cost)


def test_what_is_not_an_actor_is_not_exported() -> None:
    poisoned = first_actor(1)
    poisoned["row2.weight"][3, 4] = np.nan

    with pytest.raises(PolicyError, match=r"row2.weight holds values that are not finite"):
        export_actor(poisoned)
    with pytest.raises(PolicyError, match="names differ"):
        export_actor({"row1.weight": poisoned["row1.weight"]})


def test_a_short_run_beats_chance() -> None:
    settings = PpoSettings(
        seed=3, steps=8 * 8 * 8 * 40, tasks=40, streams=8, copies=8, devices=(4, 6), rate=2e-3, minibatch=512
    )
    start = first_actor(3)
    start["prior"][:] = 0.0
    run = TrainingRun(settings, actor=start)
    before = figures(TorchPolicy(tensors_of(start)), 5, 32, seed=1).cost.mean()

    while not run.is_done:
        run.advance()

    after = figures(TorchPolicy(run.learner.actor), 5, 32, seed=1).cost.mean()
    assert after < 0.8 * before


@pytest.mark.timeout(900)  # half a minute of work, behind everything else on the machine: the command is nice
def test_a_killed_command_goes_on_from_its_checkpoint(tmp_path: Path) -> None:
    out = tmp_path / "run"
    words = [
        sys.executable,
        "-m",
        "federation.ppo",
        "train",
        "--seed",
        "4",
        "--steps",
        str(2 * 16 * 16 * 160),
    ]
    words += ["--out", str(out), "--plain", "--scenarios", "0"]
    first = subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert first.stdout is not None
    with first.stdout as lines:
        assert any(line.startswith("update 1/2") for line in lines)
        os.kill(first.pid, signal.SIGKILL)
        first.wait()
    assert load(out).update == 1

    second = subprocess.run([*words, "--resume"], cwd=ROOT, capture_output=True, text=True, check=False)

    assert second.returncode == 0, second.stderr
    assert second.stdout.startswith("update 1/2")
    assert {path.name for path in out.iterdir()} == {
        *(CHECKPOINT_NAME, "policy.onnx", "policy.manifest.json", "curves.png")
    }


def test_a_directory_that_holds_a_run_is_not_overwritten(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save(tmp_path, TrainingRun(TINY).checkpoint())
    niceness = os.nice(0)

    assert main(["train", "--out", str(tmp_path)]) == 2
    assert "go on with --resume" in capsys.readouterr().err
    assert main(["train", "--out", str(tmp_path), "--resume", "--seed", "6"]) == 2
    assert "this run has seed 5, not 6" in capsys.readouterr().err
    assert os.nice(0) == niceness, "only a process of its own lets others go first"
