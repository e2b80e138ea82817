"""Full cost: the device on which this task by itself costs the least, the whole backlog before it.

The objective evaluated for this task alone: violation, completion time, energy. Queues run by weight over
service time (Smith 1956), the doomed last; what the task does to others that wait there is not counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from policy.baselines.picking import lowest
from policy.device_plan import plan_devices
from policy.port import Choice, DeviceView
from policy.queue_rule import QueueRule
from skerry.task import TaskSpec

if TYPE_CHECKING:
    from policy.situation import Picks, Plan, Situation


class FullCost:
    """Weighs deadline, time and energy of the task at hand."""

    name = "full-cost"
    queue_rule = QueueRule.WSPT

    def choose(self, task: TaskSpec, devices: Sequence[DeviceView], runtime_s: Sequence[float]) -> Choice:
        """Pick the lowest expected cost of this task behind everything reserved."""
        plans = plan_devices(task, devices, runtime_s)
        costs = [p.last_cost for p in plans]
        return lowest(costs, devices, [p.last_s for p in plans], lambda i: f"cost {costs[i]:.4f}")

    def choose_many(self, situation: Situation, planned: Plan) -> Picks:
        """Pick the same for many nodes at once."""
        from policy.baselines.arrays import lowest_many

        return lowest_many(planned.last_cost, situation.mask)
