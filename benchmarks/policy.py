"""Who schedules best: every scheduler on the same episodes, at three sizes, and against the exact optimum.

Owns what is compared and against which baselines. A contender is anything with the array form of a scheduler.
Episodes are drawn under the seed kept for evaluations; all contenders meet the same ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from benchmarks.harness import Baseline, Goal, Result, Run, result
from benchmarks.policy_decision import measure_decisions, shipped_policy
from policy.baselines.registry import SCHEDULERS, make_scheduler
from policy.situation import ManyScheduler
from twin.fleet.batch import batch_of, stack
from twin.fleet.metrics import Metrics
from twin.fleet.optimum import SMALL, optimum, small_episode
from twin.fleet.paired import HELD_OUT_SEED, ratio, wins
from twin.fleet.play import play
from twin.fleet.scenario import Scenario

Floats = NDArray[np.float64]

FULL_COST = "full-cost"
#: Those that look neither at a task's speed nor at its deadline: their queues grow long.
BLIND = ("fifo-first-fit", "least-loaded", "least-allocated")
SLOW = "min-increase-replan"
#: The policy that ships, and what it is held to at the smallest size.
LEARNED = "shipped-policy"
LEARNED_GOAL = Goal("<=", 0.78)
#: devices → tasks an episode: long enough for the queues of a larger site to fill.
SIZES = {8: 160, 16: 240, 32: 320}
BATCH = 64


def contenders() -> dict[str, ManyScheduler]:
    """Return every scheduler that is compared, by name; the learned policy among them."""
    found: dict[str, ManyScheduler] = {}
    for name in SCHEDULERS:
        scheduler = make_scheduler(name)
        assert isinstance(scheduler, ManyScheduler), f"{name} has no array form"
        found[name] = scheduler
    found[LEARNED] = shipped_policy()
    return found


def measure(run: Run) -> Iterator[Result]:
    """Yield cost and ratios per size, then the distance to the optimum and what a decision takes."""
    for devices, tasks in SIZES.items():
        yield from _size(run, devices, tasks)
    yield from _to_optimum(run)
    yield from measure_decisions(run)


def _size(run: Run, devices: int, tasks: int) -> Iterator[Result]:
    scenario = Scenario(devices=(devices, devices), tasks=tasks)
    episodes = run.size(200, 64)
    rivals = contenders()
    if run.quick and devices != min(SIZES):
        rivals = {name: one for name, one in rivals.items() if name not in (*BLIND, SLOW)}
        run.leave_out(f"{', '.join((*BLIND, SLOW))} at {devices} devices")
    run.say(f"{devices} devices: {episodes} episodes of {tasks} tasks for each of {len(rivals)} schedulers")
    found = {name: _play(one, scenario, episodes) for name, one in rivals.items()}
    yield from _results(f"policy.{devices}", f"{devices} devices", found)


def _play(scheduler: ManyScheduler, scenario: Scenario, episodes: int) -> Metrics:
    parts = []
    for first in range(0, episodes, BATCH):
        numbers = range(first, min(first + BATCH, episodes))
        batch = batch_of(scenario, HELD_OUT_SEED, numbers)
        parts.append(play(scheduler, scenario, numbers, batch=batch).metrics())
    return Metrics.joined(parts)


def _results(prefix: str, where: str, found: Mapping[str, Metrics]) -> Iterator[Result]:
    costs = {name: metrics.cost for name, metrics in found.items()}
    best = best_traditional(costs)
    for name, metrics in found.items():
        yield from _of_one(f"{prefix}.{name}", f"{name}, {where}", metrics)
    for name, own in costs.items():
        for rival, label in ((FULL_COST, "full_cost"), (best, "best")):
            if name != rival:
                id = f"{prefix}.{name}.vs_{label}"
                goal = LEARNED_GOAL if id == f"policy.8.{LEARNED}.vs_full_cost" else None
                yield _against(id, f"{name} / {rival}, {where}", own, costs[rival], goal)


def best_traditional(costs: Mapping[str, Floats]) -> str:
    """Return the traditional scheduler of the lowest mean cost."""
    return min((name for name in costs if name in SCHEDULERS), key=lambda name: float(costs[name].mean()))


def _of_one(prefix: str, what: str, metrics: Metrics) -> Iterator[Result]:
    means = metrics.means()
    yield result(f"{prefix}.cost", f"cost per task: {what}", means["cost"], "cost")
    yield result(f"{prefix}.misses", f"missed deadlines: {what}", 100 * means["misses"], "%")
    yield result(f"{prefix}.latency", f"mean completion time: {what}", 1000 * means["latency_s"], "ms")
    yield result(f"{prefix}.energy", f"energy per task: {what}", means["energy_j"], "J")
    yield result(f"{prefix}.useful", f"useful work per device-second: {what}", means["useful"], "s/s")


def _against(id: str, what: str, ours: Floats, theirs: Floats, goal: Goal | None) -> Result:
    gap = ratio(ours, theirs)
    text = f"{what}: 95 % {gap.low:.3f} to {gap.high:.3f}, lower on {100 * wins(ours, theirs):.0f} %"
    cost = Baseline(what="its cost", value=float(theirs.mean()))
    return result(id, text, gap.value, "x", goal=goal, baseline=cost)


def _to_optimum(run: Run) -> Iterator[Result]:
    count = run.size(200, 60)
    run.say(f"{count} bursts of {SMALL.tasks} tasks against their exact optimum")
    episodes = [small_episode(HELD_OUT_SEED, number) for number in range(count)]
    floor = np.array([optimum(one) for one in episodes])
    batch = stack(episodes)
    for name, scheduler in contenders().items():
        own = play(scheduler, SMALL, range(count), batch=batch).metrics().cost
        gap = ratio(own, floor)
        yield result(
            f"policy.optimum.{name}",
            f"{name} / exact optimum, 8 tasks: 95 % {gap.low:.3f} to {gap.high:.3f}",
            gap.value,
            "x",
            baseline=Baseline(what="exact optimum, arrivals known beforehand", value=float(floor.mean())),
        )
        yield result(
            f"policy.optimum.{name}.least",
            f"{name}: closest to the optimum",
            # Sums in another order differ in the last bits.
            float(np.round((own / floor).min(), 12)),
            "x",
            goal=Goal(">=", 1.0),
        )
