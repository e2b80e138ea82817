"""The strategies by name, each behind admission."""

from __future__ import annotations

from federation.admission import AdmissionPolicy
from federation.flower.strategies.buffered import Buffered
from federation.flower.strategies.guarded import Guarded
from federation.flower.strategies.mean import WeightedMean
from federation.flower.strategies.synchronous import Synchronous
from federation.values import RunSpec

STRATEGIES: dict[str, type[WeightedMean]] = {"synchronous": Synchronous, "buffered": Buffered}


def make_strategy(spec: RunSpec) -> Guarded:
    """Return the run's strategy behind admission with the run's limits."""
    policy = AdmissionPolicy(max_examples=spec.max_examples, max_staleness=spec.max_staleness)
    return Guarded(STRATEGIES[spec.strategy](spec), policy=policy)
