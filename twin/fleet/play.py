"""Episodes played to their end by a traditional scheduler, under the queue rule that is its own."""

from __future__ import annotations

from collections.abc import Sequence

from policy.objective import DEFAULT_WEIGHTS, ObjectiveWeights
from policy.situation import ManyScheduler
from twin.fleet.batch import Batch, batch_of
from twin.fleet.engine import Fleet
from twin.fleet.scenario import Scenario


def play(
    scheduler: ManyScheduler,
    scenario: Scenario,
    episodes: Sequence[int],
    *,
    seed: int = 0,
    weights: ObjectiveWeights = DEFAULT_WEIGHTS,
    batch: Batch | None = None,
) -> Fleet:
    """Return the finished fleet.  batch: the same episodes drawn before, so that rivals share the drawing."""
    fleet = Fleet(scenario, seed=seed, queue_rule=scheduler.queue_rule, weights=weights)
    fleet.start(batch_of(scenario, seed, episodes) if batch is None else batch)
    while not fleet.done:
        picks = scheduler.choose_many(fleet.situation(), fleet.plan())
        fleet.step(picks.device, picks.place)
    return fleet
