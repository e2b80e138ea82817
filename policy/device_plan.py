"""What one more task would mean on one device: the plan of `policy.situation` for plain values, no numpy.

Owns the single form, which the agent uses; bit for bit what the arrays give on a device with one slot. On a
device with several, the queue is taken to flow that many times as fast.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from policy.objective import DEFAULT_WEIGHTS, NOMINAL_DEADLINE_S, ObjectiveWeights, priority_weight
from policy.port import DeviceView, Reserved
from policy.queue_rule import QueueRule, queue_key
from skerry.task import OnnxSpec, TaskSpec


@dataclass(frozen=True, slots=True)
class DevicePlan:
    """As policy.situation.Plan, for one device. Seconds from now, joules, cost of the objective."""

    load_s: float
    backlog_s: float
    finish_s: float
    last_s: float
    energy_j: float
    own_cost: float
    last_cost: float
    added_cost: float
    doomed: int

    @property
    def increase(self) -> float:
        """The whole increase of the expected cost."""
        return self.own_cost + self.added_cost


#: Share of a device's power that it draws while it loads a model.
LOADING_POWER = 0.5


def model_of(task: TaskSpec) -> str:
    """Return the name under which a device keeps what the task needs loaded."""
    return task.spec.model if isinstance(task.spec, OnnxSpec) else ""


def reserved_of(task: TaskSpec, view: DeviceView, runtime_s: float) -> Reserved:
    """Return the task at hand as it would stand in this device's queue."""
    deadline_s = math.inf if task.deadline_s is None else task.deadline_s
    return Reserved(
        runtime_s=runtime_s,
        load_s=view.offer.load_s,
        tail_s=view.offer.tail_s,
        model=model_of(task),
        weight=priority_weight(task.priority),
        deadline_s=deadline_s,
        scale_s=task.deadline_s or NOMINAL_DEADLINE_S,
        key=view.offer.key,
    )


def waiting_of(
    task: TaskSpec, *, runtime_s: float, age_s: float, rule: QueueRule, load_s: float = 0.0
) -> Reserved:
    """Return a task that waits in a queue as schedulers see it.  age_s: since its deadline began to run."""
    weight = priority_weight(task.priority)
    deadline_s = math.inf if task.deadline_s is None else task.deadline_s - age_s
    return Reserved(
        runtime_s=runtime_s,
        load_s=load_s,
        model=model_of(task),
        weight=weight,
        deadline_s=deadline_s,
        scale_s=task.deadline_s or NOMINAL_DEADLINE_S,
        key=queue_key(
            rule, weight=weight, runtime_s=runtime_s, due_s=deadline_s, turn=0.0, priority=task.priority
        ),
    )


def with_key(task: TaskSpec, view: DeviceView, runtime_s: float, rule: QueueRule) -> DeviceView:
    """Return the view with the task's place in this device's queue, where one waits there."""
    if not view.reserved:
        return view
    key = queue_key(
        rule,
        weight=priority_weight(task.priority),
        runtime_s=runtime_s,
        due_s=math.inf if task.deadline_s is None else task.deadline_s,
        turn=math.inf,
        priority=task.priority,
    )
    return msgspec.structs.replace(view, offer=msgspec.structs.replace(view.offer, key=key))


def energies_of(views: Sequence[DeviceView], runtime_s: Sequence[float]) -> list[float]:
    """Return the joules of a run on each; all 0 when one is unknown, since that one would look free."""
    known = [_energy_of(view, run) for view, run in zip(views, runtime_s, strict=True)]
    found = [one for one in known if one is not None]
    return found if len(found) == len(known) else [0.0] * len(known)


def _energy_of(view: DeviceView, runtime_s: float) -> float | None:
    if view.offer.energy_j is not None:
        return view.offer.energy_j
    return None if view.device.power_w is None else view.device.power_w * runtime_s


def with_loading(views: Sequence[DeviceView], load_s: Sequence[float]) -> list[DeviceView]:
    """Return the views with what loading the task's model takes on each; energy only if all tell it."""
    counts_energy = all(view.device.power_w is not None for view in views)
    return [
        _with_loading(view, one, (view.device.power_w or 0.0) if counts_energy else 0.0)
        for view, one in zip(views, load_s, strict=True)
    ]


def _with_loading(view: DeviceView, load_s: float, power_w: float) -> DeviceView:
    offer = msgspec.structs.replace(view.offer, load_s=load_s, load_j=LOADING_POWER * power_w * load_s)
    return msgspec.structs.replace(view, offer=offer)


def plan_device(
    task: TaskSpec,
    view: DeviceView,
    runtime_s: float,
    weights: ObjectiveWeights = DEFAULT_WEIGHTS,
    *,
    energy_j: float = 0.0,
    place: int | None = None,
) -> DevicePlan:
    """Return what the task would mean on this device.

    energy_j: of the run alone, see energies_of.  place: its position there; None: by its key.
    """
    new = reserved_of(task, view, runtime_s)
    if not view.reserved:
        return _alone(new, view, weights, energy_j)
    if place is None:
        place = sum(other.key >= new.key for other in view.reserved)
    without = _Line(view, weights)
    for other in view.reserved[:place]:
        without.add(other)
    with_it = without.fork()
    with_it.add_new(new)
    for other in view.reserved[place:]:
        without.add(other)
        with_it.add(other)
    energy_j += view.offer.load_j if with_it.new_load_s > 0 else 0.0
    finish_s = with_it.new_finish()
    last_s = without.end_s + without.doomed_s + without.load_of(new) + new.runtime_s + new.tail_s
    base = weights.energy * energy_j
    return DevicePlan(
        load_s=with_it.new_load_s,
        backlog_s=without.end_s + without.doomed_s,
        finish_s=finish_s,
        last_s=last_s,
        energy_j=energy_j,
        own_cost=_cost(finish_s, new, weights) + base,
        last_cost=_cost(last_s, new, weights) + base,
        added_cost=with_it.cost() - without.cost(),
        doomed=without.doomed,
    )


def _alone(new: Reserved, view: DeviceView, weights: ObjectiveWeights, energy_j: float) -> DevicePlan:
    """The same where nothing waits, which is most of the time."""
    end_s = remaining_of(view)
    load_s = 0.0 if new.model in view.resident else new.load_s
    energy_j += view.offer.load_j if load_s > 0 else 0.0
    whole = load_s + new.runtime_s
    span = whole / max(view.device.slots, 1)
    finish_s = end_s + span + (new.tail_s + (whole - span))
    last_s = end_s + load_s + new.runtime_s + new.tail_s
    base = weights.energy * energy_j
    own, last = _cost(finish_s, new, weights) + base, _cost(last_s, new, weights) + base
    return DevicePlan(load_s, end_s, finish_s, last_s, energy_j, own, last, 0.0, 0)


def plan_devices(
    task: TaskSpec,
    views: Sequence[DeviceView],
    runtime_s: Sequence[float],
    weights: ObjectiveWeights = DEFAULT_WEIGHTS,
) -> list[DevicePlan]:
    """Return plan_device for each device, in the order given."""
    energies = energies_of(views, runtime_s)
    return [
        plan_device(task, view, run, weights, energy_j=energy_j)
        for view, run, energy_j in zip(views, runtime_s, energies, strict=True)
    ]


def remaining_of(view: DeviceView) -> float:
    """Return when a slot becomes free if nothing waited, as far as the view tells, seconds from now."""
    slots = max(view.device.slots, 1)
    if view.running + view.queued < slots:
        return 0.0
    if view.remaining_s is None:
        return view.backlog_s / slots
    return view.remaining_s / slots


def _cost(finish_s: float, task: Reserved, weights: ObjectiveWeights) -> float:
    missed = finish_s > task.deadline_s
    return weights.violation * (task.weight * missed) + weights.completion * (finish_s * (1.0 / task.scale_s))


class _Line:
    """One queue as it is expected to run: what meets its deadline first, the doomed after that."""

    __slots__ = (
        "_completion", "_doomed_completion", "_doomed_rate", "_missed", "_new_doomed", "_new_offset",
        "_new_tail", "_slots", "_weights", "doomed", "doomed_last", "doomed_s", "end_s", "new_load_s",
        "planned",
    )  # fmt: skip

    def __init__(self, view: DeviceView, weights: ObjectiveWeights) -> None:
        self.end_s = remaining_of(view)
        self.planned = set(view.resident)
        self.doomed_last = view.is_doomed_last
        self._slots = max(view.device.slots, 1)
        self._weights = weights
        self.doomed_s = self.new_load_s = self._new_offset = self._new_tail = 0.0
        self._completion = self._missed = self._doomed_rate = self._doomed_completion = 0.0
        self.doomed = 0
        self._new_doomed = False

    def fork(self) -> _Line:
        """Return the same line, to be gone on with apart from this one."""
        twin = object.__new__(_Line)
        for name in _Line.__slots__:
            setattr(twin, name, getattr(self, name))
        twin.planned = self.planned.copy()
        return twin

    def load_of(self, task: Reserved) -> float:
        return 0.0 if task.model in self.planned else task.load_s

    def add(self, task: Reserved) -> None:
        span = (self.load_of(task) + task.runtime_s) / self._slots
        self.planned.add(task.model)
        rate = 1.0 / task.scale_s
        late = self.end_s + span + task.tail_s > task.deadline_s
        self._missed += task.weight * late
        self.doomed += late
        if late and self.doomed_last:
            self.doomed_s += span
            self._doomed_rate += rate
            self._doomed_completion += (self.doomed_s + task.tail_s) * rate
        else:
            self.end_s += span
            self._completion += (self.end_s + task.tail_s) * rate

    def add_new(self, task: Reserved) -> None:
        load_s = self.load_of(task)
        self.planned.add(task.model)
        whole = load_s + task.runtime_s
        span = whole / self._slots
        self.new_load_s, self._new_tail = load_s, task.tail_s + (whole - span)
        if self.doomed_last and self.end_s + whole + task.tail_s > task.deadline_s:
            self.doomed_s += span
            self._new_offset, self._new_doomed = self.doomed_s, True
        else:
            self.end_s += span
            self._new_offset = self.end_s

    def new_finish(self) -> float:
        return (self.end_s if self._new_doomed else 0.0) + self._new_offset + self._new_tail

    def cost(self) -> float:
        completion = self._completion + self._doomed_rate * self.end_s + self._doomed_completion
        return self._weights.violation * self._missed + self._weights.completion * completion
