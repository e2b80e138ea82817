"""Least energy that still meets the deadline; when no device meets it, the one that finishes first.

Counts the whole backlog of a device. Queues run by weight over service time, the doomed last.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from policy.baselines.picking import lowest
from policy.device_plan import plan_devices
from policy.port import Choice, DeviceView
from policy.queue_rule import QueueRule
from skerry.task import TaskSpec

if TYPE_CHECKING:
    from policy.situation import Picks, Plan, Situation


#: Puts devices that are late behind all that are in time.
LATE = 1e9


class LeastEnergy:
    """Spends joules only where time is short."""

    name = "least-energy-in-time"
    queue_rule = QueueRule.WSPT

    def choose(self, task: TaskSpec, devices: Sequence[DeviceView], runtime_s: Sequence[float]) -> Choice:
        """Pick the least joules among the devices that meet the deadline, else the earliest finish."""
        plans = plan_devices(task, devices, runtime_s)
        deadline_s = math.inf if task.deadline_s is None else task.deadline_s
        in_time = [p.last_s <= deadline_s for p in plans]
        costs = [
            _cost(p.energy_j, p.last_s, fits, any(in_time)) for p, fits in zip(plans, in_time, strict=True)
        ]
        expected_s = [p.last_s for p in plans]
        return lowest(
            costs, devices, expected_s, lambda i: f"{plans[i].energy_j:.2f} J, done in {expected_s[i]:.3f} s"
        )

    def choose_many(self, situation: Situation, planned: Plan) -> Picks:
        """Pick the same for many nodes at once."""
        import numpy as np

        from policy.baselines.arrays import lowest_many

        in_time = (planned.last_s <= situation.arrival.deadline_s[:, None]) & situation.mask
        late = ~in_time.any(axis=1, keepdims=True)
        return lowest_many(
            np.where(late, planned.last_s, planned.energy_j), in_time | (late & situation.mask)
        )


def _cost(energy_j: float, finish_s: float, is_in_time: bool, is_any: bool) -> float:
    """Joules when some device is in time, then the late ones behind all of those; else seconds."""
    if not is_any:
        return finish_s
    return energy_j if is_in_time else LATE + finish_s
