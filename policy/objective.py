"""What a decision costs: useful work minus completion time, energy and violations, each term by itself.

Owns the weights and the formula; plain arithmetic, so that it works on floats and on arrays alike. Must not
know of queues, devices or who asks.
"""

from __future__ import annotations

from typing import Any

import msgspec

#: What the completion time of a task without a deadline is measured in, seconds; such a task cannot miss.
NOMINAL_DEADLINE_S = 10.0

#: Priority → weight of a violation. Three levels: low, normal, high.
PRIORITY_WEIGHTS = (1.0, 1.0, 1.0, 1.0, 2.0, 2.0, 2.0, 4.0, 4.0, 4.0)

#: The terms in the order in which rewards and costs list them.
TERMS = ("useful", "completion", "energy", "violation")


class ObjectiveWeights(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How much each term counts.

    useful is 0 by default: every policy does the same tasks, so rewarding device time spent on them pays for
    slow devices; it is there for sites that bill by use, and counts reference seconds, never busy time.
    """

    useful: float = 0.0  #: per reference second of work finished
    completion: float = 0.10  #: per deadline's length between arrival and completion
    energy: float = 0.02  #: per joule
    violation: float = 1.0  #: per missed deadline, times the task's weight


DEFAULT_WEIGHTS = ObjectiveWeights()


class Terms(msgspec.Struct, frozen=True):
    """One task's (or many tasks') figures before they are weighed. violation: missed × priority weight."""

    useful: Any  #: reference seconds of work
    completion: Any  #: completion time in deadlines
    energy: Any  #: joules
    violation: Any


def priority_weight(priority: int) -> float:
    """Return what a violation counts at this priority, 0-9."""
    return PRIORITY_WEIGHTS[max(0, min(priority, 9))]


def cost(terms: Terms, weights: ObjectiveWeights = DEFAULT_WEIGHTS) -> Any:
    """Return the weighed sum that schedulers minimise: the reward with its sign turned."""
    return (
        weights.completion * terms.completion
        + weights.energy * terms.energy
        + weights.violation * terms.violation
        - weights.useful * terms.useful
    )


def reward(terms: Terms, weights: ObjectiveWeights = DEFAULT_WEIGHTS) -> Any:
    """Return α·useful − β·completion − γ·energy − δ·violation."""
    return -cost(terms, weights)
