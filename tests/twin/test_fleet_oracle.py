"""The array engine against the plain event loop: one semantics, whoever decides and whatever comes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policy.baselines.registry import SCHEDULERS, make_scheduler
from policy.features import features, features_of
from policy.port import Choice, DeviceView
from policy.queue_rule import QueueRule
from policy.situation import plan
from skerry.task import TaskSpec
from twin.fleet.engine import Fleet
from twin.fleet.oracle import Oracle
from twin.fleet.play import play
from twin.fleet.scenario import Scenario, draw

scenarios = st.builds(
    Scenario,
    devices=st.tuples(st.integers(2, 4), st.integers(4, 9)),
    tasks=st.just(48),
    load_factor=st.sampled_from((0.5, 1.0, 2.5)),
    noise=st.sampled_from((0.0, 0.12, 0.4)),
    has_link=st.booleans(),
    cold=st.booleans(),
)


@pytest.mark.parametrize("name", SCHEDULERS)
@settings(max_examples=12, derandomize=True, deadline=None)
@given(scenario=scenarios, seed=st.integers(0, 2**32))
def test_engine_and_event_loop_agree_to_the_last_bit(name: str, scenario: Scenario, seed: int) -> None:
    scheduler: Any = make_scheduler(name)

    fleet = play(scheduler, scenario, range(3), seed=seed)

    for row in range(3):
        oracle = Oracle(draw(scenario, seed, row), scheduler.choose, scheduler.queue_rule)
        ended = oracle.run()
        assert [one.device for one in ended] == fleet.device[row].tolist()
        assert [one.start_s for one in ended] == fleet.start_s[row].tolist()
        assert [one.finish_s for one in ended] == fleet.finish_s[row].tolist()
        assert [one.energy_j for one in ended] == fleet.energy_j[row].tolist()
        assert [one.was_cold for one in ended] == fleet.was_cold[row].tolist()
        assert oracle.cost() == pytest.approx(fleet.metrics().cost[row], rel=1e-12)


@settings(max_examples=10, derandomize=True, deadline=None)
@given(scenario=scenarios, seed=st.integers(0, 2**32), rule=st.sampled_from((QueueRule.WSPT, QueueRule.EDF)))
def test_one_decision_sees_the_same_numbers_as_many(scenario: Scenario, seed: int, rule: QueueRule) -> None:
    fleet = Fleet(scenario, seed=seed, queue_rule=rule)
    fleet.reset([0])
    scheduler: Any = make_scheduler("min-increase")
    seen = []

    def choose(task: TaskSpec, views: list[DeviceView], runtime_s: list[float]) -> Choice:
        seen.append(features_of(task, views, runtime_s))
        return scheduler.choose(task, views, runtime_s)

    Oracle(draw(scenario, seed, 0), choose, rule).run()

    for rows, context in seen:
        all_rows, mask, all_context = fleet.observe()
        assert np.array_equal(all_rows[0][mask[0]], rows)
        assert np.array_equal(all_context[0], context)
        fleet.step(scheduler.choose_many(fleet.situation(), fleet.plan()).device)
    assert fleet.done


@settings(max_examples=10, derandomize=True, deadline=None)
@given(scenario=scenarios, seed=st.integers(0, 2**32))
def test_features_are_finite_and_bounded_whatever_happens(scenario: Scenario, seed: int) -> None:
    fleet = Fleet(scenario, seed=seed)
    fleet.reset(range(4))
    rng = np.random.default_rng(seed)

    while not fleet.done:
        rows, mask, context = fleet.observe()
        assert np.isfinite(rows).all()
        assert np.isfinite(context).all()
        assert np.abs(rows).max() <= 6.0
        assert not rows[~mask].any()
        fleet.step(np.where(mask, rng.random(mask.shape), -1).argmax(axis=1))


def test_features_given_a_plan_are_those_without_one() -> None:
    fleet = Fleet(Scenario(tasks=20), seed=5)
    fleet.reset(range(4))
    for _ in range(10):
        fleet.step(fleet.situation().mask.argmax(axis=1))

    with_plan, without = features(fleet.situation(), plan(fleet.situation())), features(fleet.situation())

    assert all(np.array_equal(a, b) for a, b in zip(with_plan, without, strict=True))
