"""Shortest expected completion: the device that is expected to finish this task first.

Known in the literature as minimum completion time (MCT), Maheswaran et al. 1999.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from policy.baselines.completion import expected_completions_s
from policy.port import Choice, DeviceView
from policy.queue_rule import QueueRule
from skerry.task import TaskSpec

if TYPE_CHECKING:
    from policy.situation import Picks, Plan, Situation


class ShortestExpectedCompletion:
    """Weighs what already waits on a device against how fast it is for this kind of task."""

    name = "shortest-expected-completion"
    queue_rule = QueueRule.FIFO

    def choose(self, task: TaskSpec, devices: Sequence[DeviceView], runtime_s: Sequence[float]) -> Choice:
        """Pick the lowest expected completion.  Scores: 100 for it, the others in proportion."""
        expected_s = expected_completions_s(task, devices, runtime_s)
        order = sorted(range(len(devices)), key=lambda i: (expected_s[i], devices[i].device.device_id))
        best_s = expected_s[order[0]]
        return Choice(
            index=order[0],
            reason=_reason(devices, expected_s, order),
            scores=tuple(100.0 if s <= best_s else 100.0 * best_s / s for s in expected_s),
            expected_s=expected_s,
        )

    def choose_many(self, situation: Situation, planned: Plan) -> Picks:
        """Pick the same for many nodes at once."""
        from policy.baselines.arrays import lowest_many

        return lowest_many(planned.last_s, situation.mask)


def _reason(devices: Sequence[DeviceView], expected_s: Sequence[float], order: Sequence[int]) -> str:
    best = devices[order[0]].device
    first = f"{best.device_class} {best.device_id}"
    if len(order) == 1:
        return f"{first} is the only device allowed, expected to finish in {expected_s[order[0]]:.3f} s"
    other = devices[order[1]].device
    second = other.device_id if other.device_class == best.device_class else other.device_class
    best_s, next_s = expected_s[order[0]], expected_s[order[1]]
    return f"{first} finishes first: {best_s:.3f} s against {next_s:.3f} s on {second}"
