"""How long a kind of task takes on a device: measured where it has run, else estimated from speeds.

Owns the estimate and its bounded memory. Must not know of queues, clocks or where it is kept: `dump` and
`load` give and take plain values.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Iterable
from typing import TypeVar

import msgspec

from skerry.node import Device
from skerry.task import OnnxSpec, TaskSpec

K = TypeVar("K")

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
    is_load: bool = False  #: of loading a model: `kind` is the model's content hash


class RuntimeProfile:
    """Exponentially weighted mean run times by (task kind, device), and load times by (model, device).

    The least recently measured leave first.
    scope: prefixes device ids where they are unique only on their node (at the coordinator: the node's name).
    """

    def __init__(self, *, limit: int = 4096) -> None:
        """Hold at most limit pairs of each."""
        self._limit = limit
        self._loads: OrderedDict[tuple[str, str], Measured] = OrderedDict()
        self._last_load: OrderedDict[str, Measured] = OrderedDict()
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
        mean_s, count = _after(self._measured.get(key), runtime_s)
        self._keep(Measured(kind=kind, device=key[1], mean_s=mean_s, count=count, speed=device.speed))

    def observe_load(self, model: str, device: Device, load_s: float) -> None:
        """Take in how long a device took to load a model, seconds; 0 says that it was loaded already."""
        if not math.isfinite(load_s) or load_s <= 0:
            return
        key = (model, device.device_id)
        mean_s, count = _after(self._loads.get(key), load_s)
        self._keep(Measured(kind=model, device=key[1], mean_s=mean_s, count=count, is_load=True))

    def load_s(self, model: str, device: Device) -> float:
        """Return what loading a model takes, seconds: measured here, else elsewhere, else 0 (not known)."""
        known = self._loads.get((model, device.device_id)) or self._last_load.get(model)
        return known.mean_s if known else 0.0

    def has_measured(self, kind: str, device: Device) -> bool:
        """Decide whether a run time was measured, so that an expectation is more than an estimate."""
        return (kind, device.device_id) in self._measured

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
        return [*self._measured.values(), *self._loads.values()]

    def load(self, measured: Iterable[Measured]) -> None:
        """Take in what dump gave, in that order; values that make no sense are left out."""
        for one in measured:
            if math.isfinite(one.mean_s) and one.mean_s > 0 and one.speed > 0:
                self._keep(one)

    def _keep(self, measured: Measured) -> None:
        table = self._loads if measured.is_load else self._measured
        last_of = self._last_load if measured.is_load else self._last_of_kind
        _put(table, (measured.kind, measured.device), measured, self._limit)
        _put(last_of, measured.kind, measured, self._limit)


def _put(table: OrderedDict[K, Measured], key: K, measured: Measured, limit: int) -> None:
    table[key] = measured
    table.move_to_end(key)
    if len(table) > limit:
        table.popitem(last=False)


def _after(before: Measured | None, value_s: float) -> tuple[float, int]:
    """The mean and the count after one more measurement."""
    value_s = max(value_s, SHORTEST_S)
    if before is None:
        return value_s, 1
    return before.mean_s + WEIGHT * (value_s - before.mean_s), before.count + 1


def _name(scope: str, device: Device) -> str:
    return f"{scope}/{device.device_id}" if scope else device.device_id
