"""Least increase with the best place: the device, and the position in its queue, that raise the cost least.

Re-optimises one queue per decision, within bounds: the order of those who wait stays, the new task may go
between any of the first MOST of them, or to the end. Queues run as placed, the doomed last.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from policy.baselines.picking import lowest
from policy.device_plan import DevicePlan, energies_of, plan_device
from policy.port import Choice, DeviceView
from policy.queue_rule import QueueRule
from skerry.task import TaskSpec

if TYPE_CHECKING:
    from policy.situation import Picks, Plan, Situation

#: Positions that are tried, from the front; the end is always tried too.
MOST = 12


class MinIncreaseReplan:
    """Min-increase that chooses the place in the queue as well."""

    name = "min-increase-replan"
    queue_rule = QueueRule.PLACED

    def choose(self, task: TaskSpec, devices: Sequence[DeviceView], runtime_s: Sequence[float]) -> Choice:
        """Pick the device and the place of the lowest increase; on a tie the place nearest the end."""
        energies = energies_of(devices, runtime_s)
        best = [_best(task, *one) for one in zip(devices, runtime_s, energies, strict=True)]
        costs = [plan.increase for plan, _ in best]
        choice = lowest(
            costs,
            devices,
            [plan.finish_s for plan, _ in best],
            lambda i: f"cost +{costs[i]:.4f} at place {best[i][1]}",
        )
        return msgspec.structs.replace(choice, place=best[choice.index][1])

    def choose_many(self, situation: Situation, planned: Plan) -> Picks:
        """Pick the same for many nodes at once.  planned: with the task at the end of every queue."""
        import numpy as np

        from policy.baselines.arrays import lowest_many
        from policy.situation import plan

        least, place = planned.increase, situation.queued
        for position in range(min(int(situation.queued.max(initial=0)), MOST) - 1, -1, -1):
            increase = plan(situation, place=position).increase
            better = (increase < least) & (position < situation.queued)
            least = np.where(better, increase, least)
            place = np.where(better, position, place)
        picks = lowest_many(least, situation.mask)
        picks.place = place[np.arange(len(place)), picks.device]
        return picks


def _best(task: TaskSpec, view: DeviceView, runtime_s: float, energy_j: float) -> tuple[DevicePlan, int]:
    end = len(view.reserved)
    best = plan_device(task, view, runtime_s, energy_j=energy_j, place=end), end
    for position in range(min(end, MOST) - 1, -1, -1):
        plan = plan_device(task, view, runtime_s, energy_j=energy_j, place=position)
        if plan.increase < best[0].increase:
            best = plan, position
    return best
