"""Least allocated: the device with the largest share of free slots and free model memory.

The default spreading score of container orchestrators, carried over to accelerators: it counts what is taken,
not how long it takes. Queues run first in, first out.
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


class LeastAllocated:
    """Keeps the allocated shares of all devices even."""

    name = "least-allocated"
    queue_rule = QueueRule.FIFO

    def choose(self, task: TaskSpec, devices: Sequence[DeviceView], runtime_s: Sequence[float]) -> Choice:
        """Pick the device whose slots and memory are taken the least."""
        expected_s = expected_completions_s(task, devices, runtime_s)
        taken = [_taken(view) for view in devices]
        return lowest(taken, devices, expected_s, lambda i: f"{taken[i]:.2f} of it is allocated")

    def choose_many(self, situation: Situation, planned: Plan) -> Picks:
        """Pick the same for many nodes at once."""
        from policy.baselines.arrays import lowest_many

        count = situation.running + situation.queued
        slots = count / (count + 1.0)
        return lowest_many((slots + (1.0 - situation.free_memory)) / 2.0, situation.mask)


def _taken(view: DeviceView) -> float:
    """Mean of the taken shares; tasks beyond the slots push the share of slots towards 1."""
    count = (view.running + view.queued) / max(view.device.slots, 1)
    return (count / (count + 1.0) + (1.0 - view.free_memory_share)) / 2.0
