"""FIFO first fit: the first device with a free slot, in the order of their ids; speed plays no part."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from policy.baselines.completion import expected_completions_s
from policy.port import Choice, DeviceView
from policy.queue_rule import QueueRule
from skerry.task import TaskSpec

if TYPE_CHECKING:
    from policy.situation import Picks, Plan, Situation


class FifoFirstFit:
    """Takes tasks as they come and gives each the first device that is free."""

    name = "fifo-first-fit"
    queue_rule = QueueRule.FIFO

    def choose(self, task: TaskSpec, devices: Sequence[DeviceView], runtime_s: Sequence[float]) -> Choice:
        """Pick the first free device by id; when none is free, the one with the shortest line."""
        order = sorted(range(len(devices)), key=lambda i: devices[i].device.device_id)
        index = min(order, key=lambda i: _line(devices[i]))
        return Choice(
            index=index,
            reason=_reason(devices[index]),
            scores=tuple(100.0 / (1.0 + _line(view)) for view in devices),
            expected_s=expected_completions_s(task, devices, runtime_s),
        )

    def choose_many(self, situation: Situation, planned: Plan) -> Picks:
        """Pick the same for many nodes at once."""
        from policy.baselines.arrays import lowest_many

        taken = situation.running + situation.queued
        return lowest_many(taken, situation.mask)


def _line(view: DeviceView) -> float:
    """Whole tasks that stand before a new one, per slot; 0 while a slot is free."""
    slots = max(view.device.slots, 1)
    taken = view.running + view.queued
    return 0.0 if taken < slots else (taken - slots + 1) / slots


def _reason(view: DeviceView) -> str:
    name = f"{view.device.device_class} {view.device.device_id}"
    if _line(view) == 0.0:
        return f"{name} is the first device with a free slot"
    return f"no device is free; {name} has the shortest line: {view.running + view.queued} before it"
