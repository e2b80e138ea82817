"""Trials on a small site: what is bad goes early, what is equal stays, what is better gets everything."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence

import pytest

from policy.baselines.fifo_first_fit import FifoFirstFit
from policy.baselines.shortest_expected_completion import ShortestExpectedCompletion
from policy.gate.state import Arm, Stage
from policy.port import Choice, DeviceView, Scheduler
from skerry.task import TaskSpec
from tests.policy.gate.site import Pick, Result, play

SEEDS = range(25)
MOST_DECISIONS = 200  #: of the candidate's own before it is gone
HORIZON = 6000


class NotANumber(Pick):
    """Scores that are none."""

    def choose(self, task: TaskSpec, devices: Sequence[DeviceView], runtime_s: Sequence[float]) -> Choice:
        """Return NaN for each."""
        scores = tuple(math.nan for _ in devices)
        return Choice(index=0, reason="", scores=scores, expected_s=tuple(runtime_s))


def a_random_one(seed: int) -> Scheduler:
    rng = random.Random(seed + 1000)
    return Pick(lambda views, _: rng.randrange(len(views)))


def one_in_four_at_random(seed: int) -> Scheduler:
    rng, best = random.Random(seed + 1000), ShortestExpectedCompletion()

    def rule(views: Sequence[DeviceView], runtime_s: Sequence[float]) -> int:
        return rng.randrange(len(views)) if rng.random() < 0.25 else best.choose(TASK, views, runtime_s).index

    from tests.policy.gate.site import TASK

    return Pick(rule)


BAD: dict[str, Callable[[int], Scheduler]] = {
    "random": a_random_one,
    "always the slowest": lambda _: Pick(lambda views, run: run.index(max(run))),
    "always the fastest": lambda _: Pick(lambda views, run: run.index(min(run))),
    "the longest queue": lambda _: Pick(
        lambda views, _: max(range(len(views)), key=lambda i: views[i].backlog_s)
    ),
    "not a number": lambda _: NotANumber(lambda views, run: 0),
    "one in four at random": one_in_four_at_random,
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_policy_is_rolled_back_early_in_every_trial(name: str) -> None:
    results = [play(BAD[name](seed), seed) for seed in SEEDS]

    assert {result.gate.state.stage for result in results} == {Stage.ROLLED_BACK}
    assert max(result.candidate_decisions for result in results) <= MOST_DECISIONS


def test_bad_policies_cost_little_before_they_are_gone() -> None:
    base = sum(cost_of_the_fallback(seed) for seed in range(8))
    for name, make in BAD.items():
        spent = sum(play(make(seed), seed, limit=HORIZON, until=frozenset()).cost for seed in range(8))
        assert spent <= 1.05 * base, name


def cost_of_the_fallback(seed: int) -> float:
    return play(ShortestExpectedCompletion(), seed, limit=HORIZON, until=frozenset()).cost


def test_an_equal_policy_is_hardly_ever_rolled_back() -> None:
    results = [play(ShortestExpectedCompletion(), seed) for seed in range(40)]
    rolled_back = [result for result in results if result.gate.state.stage is Stage.ROLLED_BACK]

    assert len(rolled_back) / len(results) < 0.05


def test_a_better_policy_reaches_full() -> None:
    results: list[Result] = [
        play(ShortestExpectedCompletion(), seed, fallback=FifoFirstFit()) for seed in SEEDS
    ]

    assert {result.gate.state.stage for result in results} == {Stage.FULL}
    assert max(result.decisions for result in results) < 1500
    assert all(result.gate.evidence()["cost_excess"] < 0 for result in results)
    assert all(result.gate.state.decisions[Arm.FALLBACK] > 0 for result in results)
