"""Least loaded: the device on which the least work is reserved, in seconds; its speed plays no part.

Spreading by load, as most balancers do. Queues run first in, first out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from policy.baselines.completion import expected_completions_s
from policy.baselines.picking import lowest
from policy.port import Choice, DeviceView
from policy.queue_rule import QueueRule
from skerry.task import TaskSpec

if TYPE_CHECKING:
    from policy.situation import Picks, Plan, Situation


class LeastLoaded:
    """Sends each task where the queue is shortest in time."""

    name = "least-loaded"
    queue_rule = QueueRule.FIFO

    def choose(self, task: TaskSpec, devices: Sequence[DeviceView], runtime_s: Sequence[float]) -> Choice:
        """Pick the device with the least reserved seconds per slot."""
        expected_s = expected_completions_s(task, devices, runtime_s)
        loads = [view.backlog_s / max(view.device.slots, 1) for view in devices]
        return lowest(loads, devices, expected_s, lambda i: f"{loads[i]:.3f} s reserved")

    def choose_many(self, situation: Situation, planned: Plan) -> Picks:
        """Pick the same for many nodes at once."""
        from policy.baselines.arrays import lowest_many

        return lowest_many(planned.backlog_s, situation.mask)
