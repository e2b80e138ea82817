"""The policy benchmark at its smallest: every figure comes, and none is better than the optimum."""

from __future__ import annotations

import io

import numpy as np
import pytest

import benchmarks.policy as bench
from benchmarks.harness import Run
from policy.baselines.registry import SCHEDULERS


def test_every_scheduler_is_measured_at_every_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "SIZES", {3: 12, 5: 12})
    run = Run(quick=True, progress=io.StringIO())

    found = {one.id: one for one in bench.measure(run)}

    for name in SCHEDULERS:
        assert found[f"policy.3.{name}.cost"].value > 0
        assert found[f"policy.optimum.{name}"].value >= 1
        assert found[f"policy.optimum.{name}.least"].ok
        assert (f"policy.5.{name}.cost" in found) == (name not in (*bench.BLIND, bench.SLOW))
    assert found["policy.3.min-increase.vs_full_cost"].value < 1
    assert len(run.left_out) == 1


def test_the_best_traditional_scheduler_is_the_cheapest_of_those_that_ship() -> None:
    costs = {"full-cost": np.array([1.0, 3.0]), "min-increase": np.array([2.0, 1.0]), "policy:x": np.zeros(2)}

    assert bench.best_traditional(costs) == "min-increase"
