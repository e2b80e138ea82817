"""When would a device finish one more task? The estimate that the schedulers share which look no deeper."""

from __future__ import annotations

from collections.abc import Sequence

from policy.device_plan import model_of
from policy.port import DeviceView
from skerry.task import TaskSpec


def expected_completions_s(
    task: TaskSpec, devices: Sequence[DeviceView], runtime_s: Sequence[float]
) -> tuple[float, ...]:
    """Return for each device the seconds from now until it would finish the task."""
    model = model_of(task)
    return tuple(_completion_s(model, view, run) for view, run in zip(devices, runtime_s, strict=True))


def _completion_s(model: str, view: DeviceView, runtime_s: float) -> float:
    """A free slot starts at once; otherwise the reserved seconds count as shared evenly among the slots.

    Loading counts unless the model is there, or will be by what is reserved.
    """
    slots = max(view.device.slots, 1)
    wait_s = 0.0 if view.running + view.queued < slots else view.backlog_s / slots
    return wait_s + _load_s(model, view) + runtime_s + view.offer.tail_s


def _load_s(model: str, view: DeviceView) -> float:
    if view.offer.load_s == 0.0 or model in view.resident:
        return 0.0
    return 0.0 if any(other.model == model for other in view.reserved) else view.offer.load_s
