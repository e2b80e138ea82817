"""Earliest deadline first: queues by deadline, and the device that is expected to finish the task first.

EDF within a device (Liu and Layland 1973), expected completion across devices. The queue's rule is what sets
it apart from `shortest-expected-completion`; the choice of device counts the whole backlog.
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


class EarliestDeadline:
    """Expected completion over queues that run by deadline."""

    name = "earliest-deadline"
    queue_rule = QueueRule.EDF

    def choose(self, task: TaskSpec, devices: Sequence[DeviceView], runtime_s: Sequence[float]) -> Choice:
        """Pick the lowest expected completion behind everything reserved."""
        expected_s = expected_completions_s(task, devices, runtime_s)
        return lowest(expected_s, devices, expected_s, lambda i: f"done in {expected_s[i]:.3f} s")

    def choose_many(self, situation: Situation, planned: Plan) -> Picks:
        """Pick the same for many nodes at once."""
        from policy.baselines.arrays import lowest_many

        return lowest_many(planned.last_s, situation.mask)
