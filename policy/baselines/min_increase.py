"""Least increase: the device on which the expected cost of everything reserved rises the least.

Own cost at its place in the queue, plus what it costs the tasks that wait there: greedy dispatching as in
Gupta, Moseley, Uetz and Xie 2017 ("Greed Works", arXiv 1703.01634), with the objective in the place of
weighted completion time. Queues run by weight over service time, the doomed last.
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


class MinIncrease:
    """Counts what a task costs others, not only itself."""

    name = "min-increase"
    queue_rule = QueueRule.WSPT

    def choose(self, task: TaskSpec, devices: Sequence[DeviceView], runtime_s: Sequence[float]) -> Choice:
        """Pick the lowest increase of the expected cost."""
        plans = plan_devices(task, devices, runtime_s)
        costs = [p.increase for p in plans]
        return lowest(
            costs,
            devices,
            [p.finish_s for p in plans],
            lambda i: f"cost +{costs[i]:.4f}, done in {plans[i].finish_s:.3f} s",
        )

    def choose_many(self, situation: Situation, planned: Plan) -> Picks:
        """Pick the same for many nodes at once."""
        from policy.baselines.arrays import lowest_many

        return lowest_many(planned.increase, situation.mask)
