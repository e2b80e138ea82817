"""How long a kind of task takes on a device: measured where it has run, else estimated from speeds.

Owns the estimate and its bounded memory. Must not know of queues, clocks or where it is kept: `dump` and
`load` give and take plain values.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Iterable

import msgspec

from skerry.node import Device
from skerry.task import OnnxSpec, TaskSpec

#: Weight of a new measurement: the last ten or so decide, one outlier moves the mean by a fifth.
WEIGHT = 0.2
#: Prior run time on one CPU slot, seconds, before anything was measured: small models, short commands.
PRIOR_ONNX_S = 0.1
PRIOR_COMMAND_S = 1.0
#: Below the resolution of anything measured; keeps ratios finite.
SHORTEST_S = 1e-6


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of one (kind, device)."""

    kind: str
    device: str
    mean_s: float  #: exponentially weighted mean of the run times, seconds
    count: int
    speed: float = 1.0  #: the device's nominal speed when it was measured


class RuntimeProfile:
    """Exponentially weighted mean run times by (task kind, device); the least recently measured leave first.

    scope: prefixes device ids where they are unique only on their node (at the coordinator: the node's name).
    """

    def __init__(self, *, limit: int = 4096) -> None:
        """Hold at most limit pairs."""
        self._limit = limit
        self._measured: OrderedDict[tuple[str, str], Measured] = OrderedDict()
        self._last_of_kind: OrderedDict[str, Measured] = OrderedDict()

    def __len__(self) -> int:
        """Return how many pairs were measured and are still held."""
        return len(self._measured)

    def observe(self, kind: str, device: Device, runtime_s: float, *, scope: str = "") -> None:
        """Take in one measured run time, seconds; what no clock can have measured is left out."""
        if not math.isfinite(runtime_s) or runtime_s < 0:
            return
        key = (kind, _name(scope, device))
        runtime_s = max(runtime_s, SHORTEST_S)
        before = self._measured.get(key)
        mean_s = runtime_s if before is None else before.mean_s + WEIGHT * (runtime_s - before.mean_s)
        count = 1 if before is None else before.count + 1
        self._keep(Measured(kind=kind, device=key[1], mean_s=mean_s, count=count, speed=device.speed))

    def expected_s(self, task: TaskSpec, device: Device, *, scope: str = "") -> float:
        """Return the expected run time, seconds: measured here, else scaled from elsewhere, else a prior."""
        here = self._measured.get((task.kind, _name(scope, device)))
        if here is not None:
            return here.mean_s
        speed = max(device.speed, SHORTEST_S)
        elsewhere = self._last_of_kind.get(task.kind)
        if not isinstance(task.spec, OnnxSpec):  # a device's speed is one for models
            return elsewhere.mean_s if elsewhere else min(PRIOR_COMMAND_S, task.max_runtime_s)
        if elsewhere is not None:
            return elsewhere.mean_s * elsewhere.speed / speed
        return min(PRIOR_ONNX_S / speed, task.max_runtime_s)

    def dump(self) -> list[Measured]:
        """Return everything measured, the least recently measured first."""
        return list(self._measured.values())

    def load(self, measured: Iterable[Measured]) -> None:
        """Take in what dump gave, in that order; values that make no sense are left out."""
        for one in measured:
            if math.isfinite(one.mean_s) and one.mean_s > 0 and one.speed > 0:
                self._keep(one)

    def _keep(self, measured: Measured) -> None:
        key = (measured.kind, measured.device)
        self._measured[key] = measured
        self._measured.move_to_end(key)
        self._last_of_kind[measured.kind] = measured
        self._last_of_kind.move_to_end(measured.kind)
        if len(self._measured) > self._limit:
            self._measured.popitem(last=False)
        if len(self._last_of_kind) > self._limit:
            self._last_of_kind.popitem(last=False)


def _name(scope: str, device: Device) -> str:
    return f"{scope}/{device.device_id}" if scope else device.device_id
