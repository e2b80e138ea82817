"""Shortest expected completion: the device that is expected to finish this task first.

Known in the literature as minimum completion time (MCT), Maheswaran et al. 1999.
"""

from __future__ import annotations

from collections.abc import Sequence

from policy.baselines.completion import expected_completion_s
from policy.port import Choice, DeviceView
from skerry.task import TaskSpec


class ShortestExpectedCompletion:
    """Weighs what already waits on a device against how fast it is for this kind of task."""

    name = "shortest-expected-completion"

    def choose(self, task: TaskSpec, devices: Sequence[DeviceView], runtime_s: Sequence[float]) -> Choice:
        """Pick the lowest expected completion.  Scores: 100 for it, the others in proportion."""
        expected_s = tuple(map(expected_completion_s, devices, runtime_s))
        order = sorted(range(len(devices)), key=lambda i: (expected_s[i], devices[i].device.device_id))
        best_s = expected_s[order[0]]
        return Choice(
            index=order[0],
            reason=_reason(devices, expected_s, order),
            scores=tuple(100.0 if s <= best_s else 100.0 * best_s / s for s in expected_s),
            expected_s=expected_s,
        )


def _reason(devices: Sequence[DeviceView], expected_s: Sequence[float], order: Sequence[int]) -> str:
    best = devices[order[0]].device
    first = f"{best.device_class} {best.device_id}"
    if len(order) == 1:
        return f"{first} is the only device allowed, expected to finish in {expected_s[order[0]]:.3f} s"
    other = devices[order[1]].device
    second = other.device_id if other.device_class == best.device_class else other.device_class
    best_s, next_s = expected_s[order[0]], expected_s[order[1]]
    return f"{first} finishes first: {best_s:.3f} s against {next_s:.3f} s on {second}"
