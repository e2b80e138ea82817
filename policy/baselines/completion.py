"""When would a device finish one more task? The one estimate that all baselines share."""

from __future__ import annotations

from policy.port import DeviceView


def expected_completion_s(view: DeviceView, runtime_s: float) -> float:
    """Return seconds from now until this device would finish the task.

    A free slot starts at once; otherwise the reserved seconds are taken as shared evenly among the slots.
    """
    slots = max(view.device.slots, 1)
    wait_s = 0.0 if view.running + view.queued < slots else view.backlog_s / slots
    return wait_s + runtime_s
