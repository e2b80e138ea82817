"""What an episode came to: cost and its parts, per episode. Owns the definitions, reads a finished engine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from policy.objective import Terms, cost
from twin.fleet.kinds import KINDS
from twin.fleet.scenario import OFFLOAD

if TYPE_CHECKING:
    from twin.fleet.engine import Fleet

Floats = NDArray[np.float64]
_REFERENCE_S = np.array([k.reference_s for k in KINDS])


@dataclass(frozen=True, kw_only=True)
class Metrics:
    """Per episode: [episodes]. Shares are of its tasks."""

    cost: Floats  #: per task, the objective's
    misses: Floats  #: share that missed its deadline
    weighted_misses: Floats  #: the same, by priority weight
    latency_s: Floats  #: mean from arrival to completion
    energy_j: Floats  #: per task
    cold_starts: Floats  #: share that had to load a model
    useful: Floats  #: reference seconds of work per device-second of the site's own devices
    busy: Floats  #: share of time its own devices were busy
    offload: Floats  #: share that left over the link

    @staticmethod
    def joined(parts: Sequence[Metrics]) -> Metrics:
        """Return the figures of several batches as one."""
        return Metrics(
            **{f.name: np.concatenate([getattr(part, f.name) for part in parts]) for f in fields(Metrics)}
        )

    def means(self) -> dict[str, float]:
        """Return the mean of each figure over the episodes."""
        return {field.name: float(getattr(self, field.name).mean()) for field in fields(self)}


def metrics_of(fleet: Fleet) -> Metrics:
    """Return the figures of a fleet whose episodes are done."""
    b = fleet.batch
    latency = fleet.finish_s - b.arrival_s
    missed = fleet.finish_s > b.arrival_s + b.deadline_s
    offloaded = np.take_along_axis(b.device_class, fleet.device, axis=1) == OFFLOAD
    useful = _REFERENCE_S[b.kind] * b.size
    violation = b.weight * missed
    cost_per_task: Any = cost(Terms(useful, latency / b.deadline_s, fleet.energy_j, violation), fleet.weights)
    own = b.present & (b.device_class != OFFLOAD)
    span = (np.fmax.reduce(fleet.finish_s, axis=1) - b.arrival_s[:, 0]) * own.sum(axis=1)
    return Metrics(
        cost=cost_per_task.mean(axis=1),
        misses=missed.mean(axis=1),
        weighted_misses=violation.sum(axis=1) / b.weight.sum(axis=1),
        latency_s=latency.mean(axis=1),
        energy_j=fleet.energy_j.mean(axis=1),
        cold_starts=fleet.was_cold.mean(axis=1),
        useful=(useful * ~offloaded).sum(axis=1) / span,
        busy=np.cumsum(np.where(own, fleet.busy_s, 0.0), axis=1)[:, -1] / span,
        offload=offloaded.mean(axis=1),
    )
