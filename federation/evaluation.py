"""A policy against the traditional schedulers on scenarios held out from training, pair by pair.

Needs numpy and onnxruntime, no torch: who judges a policy need not be able to make one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from policy.baselines.full_cost import FullCost
from policy.baselines.min_increase import MinIncrease
from policy.situation import ManyScheduler
from skerry.policy_manifest import Comparison, EvaluationSummary
from twin.fleet.batch import batch_of
from twin.fleet.metrics import Metrics
from twin.fleet.paired import HELD_OUT_SEED, ratio, wins
from twin.fleet.play import play
from twin.fleet.scenario import Scenario

#: What a policy is compared with: the strongest rule that looks at one task only, and the strongest of all.
RIVALS: tuple[Callable[[], ManyScheduler], ...] = (FullCost, MinIncrease)
#: Devices → tasks an episode, long enough for the queues of a larger site to fill.
TASKS = {8: 160, 16: 240, 32: 320}
DEVICES = tuple(TASKS)
_BATCH = 64


def evaluate(
    policy: ManyScheduler,
    *,
    devices: Sequence[int] = DEVICES,
    scenarios: int = 200,
    seed: int = HELD_OUT_SEED,
    say: Callable[[str], None] = lambda _: None,
) -> EvaluationSummary:
    """Return the policy's cost beside each rival's, at each size, on the same scenarios.

    seed: of the scenarios; say: told what is being measured.
    """
    found: list[Comparison] = []
    for count in devices:
        say(f"{count} devices: {scenarios} scenarios")
        own = figures(policy, count, scenarios, seed)
        found += [_against(own, rival(), count, scenarios, seed) for rival in RIVALS]
    return EvaluationSummary(seed=seed, comparisons=tuple(found))


def figures(scheduler: ManyScheduler, devices: int, scenarios: int, seed: int = HELD_OUT_SEED) -> Metrics:
    """Return a scheduler's figures on these scenarios."""
    scenario = Scenario(devices=(devices, devices), tasks=TASKS.get(devices, 10 * max(devices, 16)))
    parts = []
    for first in range(0, scenarios, _BATCH):
        numbers = range(first, min(first + _BATCH, scenarios))
        parts.append(play(scheduler, scenario, numbers, batch=batch_of(scenario, seed, numbers)).metrics())
    return Metrics.joined(parts)


def _against(own: Metrics, rival: ManyScheduler, devices: int, scenarios: int, seed: int) -> Comparison:
    theirs = figures(rival, devices, scenarios, seed).cost
    gap = ratio(own.cost, theirs)
    return Comparison(
        devices=devices,
        scenarios=scenarios,
        against=rival.name,
        cost=float(own.cost.mean()),
        other_cost=float(theirs.mean()),
        ratio=gap.value,
        low=gap.low,
        high=gap.high,
        wins=wins(own.cost, theirs),
    )
