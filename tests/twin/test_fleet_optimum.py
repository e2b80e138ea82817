"""The exact optimum: what brute force says on tiny episodes, and a floor that no scheduler goes below."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from policy.baselines.registry import SCHEDULERS, make_scheduler
from policy.objective import Terms, cost
from twin.fleet.batch import stack
from twin.fleet.kinds import KINDS
from twin.fleet.optimum import MOST_TASKS, SMALL, optimum, small_episode
from twin.fleet.play import play
from twin.fleet.scenario import Episode, Scenario, draw

TINY = Scenario(devices=(3, 3), tasks=4, cold=True, noise=0.0, load_factor=3.0)


def cost_of(e: Episode, assignment: tuple[int, ...], order: tuple[int, ...]) -> float:
    """Cost per task when devices take what is theirs in this order."""
    free = [0.0] * len(e.device_class)
    loaded = [int(bits) for bits in e.resident]
    total = 0.0
    for task in order:
        d, k = assignment[task], int(e.kind[task])
        if not e.supported[d, k]:
            return float("inf")
        is_cold = not loaded[d] >> k & 1
        loaded[d] |= 1 << k
        begin = max(free[d], float(e.arrival_s[task]))
        free[d] = begin + is_cold * float(e.load_s[d, k]) + float(e.unit_s[d, k] * e.size[task])
        finish = free[d] + float(e.tail_s[d, k])
        latency = finish - float(e.arrival_s[task])
        energy = float(e.unit_j[d, k] * e.size[task]) + is_cold * float(e.load_j[d, k])
        missed = latency > float(e.deadline_s[task])
        useful = KINDS[k].reference_s * float(e.size[task])
        total += cost(Terms(useful, latency / float(e.deadline_s[task]), energy, e.weight[task] * missed))
    return total / len(order)


@pytest.mark.parametrize("number", range(6))
def test_the_optimum_is_what_brute_force_finds(number: int) -> None:
    episode = small_episode(11, number, TINY)
    assignments = list(itertools.product(range(3), repeat=4))
    orders = list(itertools.permutations(range(4)))

    least = min(cost_of(episode, a, o) for a in assignments for o in orders)

    assert optimum(episode) == pytest.approx(least, rel=1e-12)


def test_no_scheduler_goes_below_the_optimum() -> None:
    episodes = [small_episode(7, number) for number in range(60)]
    floor = np.array([optimum(one) for one in episodes])
    batch = stack(episodes)

    costs = {}
    for name in SCHEDULERS:
        scheduler: Any = make_scheduler(name)
        costs[name] = play(scheduler, SMALL, range(60), batch=batch).metrics().cost

    for name, found in costs.items():
        assert (found >= floor * (1 - 1e-12)).all(), name
    best = np.min(list(costs.values()), axis=0)
    assert (best <= floor * (1 + 1e-12)).any(), "no instance is solved to the optimum: the floor is too low"


def test_too_many_tasks_for_an_optimum_are_refused() -> None:
    with pytest.raises(ValueError, match=f"at most {MOST_TASKS}"):
        optimum(draw(Scenario(tasks=MOST_TASKS + 1), 0, 0))
