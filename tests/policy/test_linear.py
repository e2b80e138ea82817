"""Policies written by hand: the checks take them, and each broken one is refused with its reason."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from policy.actor import Actor, Refused, load_actor
from policy.baselines.min_increase import MinIncrease
from policy.linear import write_linear
from policy.port import DeviceView
from policy.testing import a_device, a_model_task
from skerry.identity import PrivateKey

KEY = PrivateKey.generate()


def loaded(path: Path) -> Actor | Refused:
    return load_actor(path, trusted_keys=(KEY.public_hex,), slowest_s=1.0)


def test_the_negative_of_the_rules_cost_is_the_rule(tmp_path: Path) -> None:
    write_linear(tmp_path / "p.onnx", {"increase": -1.0}, key=KEY)
    actor = loaded(tmp_path / "p.onnx")
    assert isinstance(actor, Actor)
    devices = [
        DeviceView(device=a_device("cpu", "cpu-0")),
        DeviceView(device=a_device("gpu", "gpu-0"), backlog_s=0.4, running=1),
    ]
    for runtime_s in ([1.0, 0.1], [0.2, 0.1], [0.3, 0.3]):
        task = a_model_task(deadline_s=2.0)
        assert actor.choose(task, devices, runtime_s).index == (
            MinIncrease().choose(task, devices, runtime_s).index
        )


def test_a_weight_that_is_no_number_is_refused(tmp_path: Path) -> None:
    write_linear(tmp_path / "p.onnx", {"increase": math.nan}, key=KEY)

    refused = loaded(tmp_path / "p.onnx")
    assert isinstance(refused, Refused)
    assert refused.code == "weights"


def test_an_unsigned_one_is_refused(tmp_path: Path) -> None:
    write_linear(tmp_path / "p.onnx", {"increase": -1.0}, key=None)

    refused = loaded(tmp_path / "p.onnx")
    assert isinstance(refused, Refused)
    assert refused.reason == "the manifest is not signed"


def test_a_feature_that_there_is_not_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no feature colour"):
        write_linear(tmp_path / "p.onnx", {"colour": 1.0}, key=KEY)
