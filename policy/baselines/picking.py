"""Picking among devices: lowest cost, ties by device id, scores that say how far off the others are."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from policy.port import Choice, DeviceView

#: Costs below this do not stretch the scores any further.
SMALLEST_SCALE = 1e-3


def lowest(
    costs: Sequence[float],
    devices: Sequence[DeviceView],
    expected_s: Sequence[float],
    word: Callable[[int], str],
) -> Choice:
    """Return the device of least cost.  word: says a device's cost for people, by index."""
    order = sorted(range(len(costs)), key=lambda i: (costs[i], devices[i].device.device_id))
    best = costs[order[0]]
    scale = max(abs(best), SMALLEST_SCALE)
    return Choice(
        index=order[0],
        reason=_reason(devices, order, word),
        scores=tuple(100.0 / (1.0 + (one - best) / scale) for one in costs),
        expected_s=tuple(expected_s),
    )


def name_of(view: DeviceView) -> str:
    """Return a device's name in a reason."""
    return f"{view.device.device_class} {view.device.device_id}"


def _reason(devices: Sequence[DeviceView], order: Sequence[int], word: Callable[[int], str]) -> str:
    first = f"{name_of(devices[order[0]])}: {word(order[0])}"
    if len(order) == 1:
        return f"{first}; the only device allowed"
    return f"{first}, against {word(order[1])} on {name_of(devices[order[1]])}"
