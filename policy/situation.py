"""What decisions are made on, as arrays: many nodes at once, one arriving task on each.

Owns the form and the plan of a device's queue (who finishes when, and what one more task does to the others).
Must not know where the figures come from: an engine or an agent fills them. Needs numpy.

Arrays are [nodes, devices] of float64 unless said otherwise; queues are [slots, nodes, devices] in the order
in which the device's rule will take them. Sums run slot by slot, so that padding never changes a result.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from policy.objective import DEFAULT_WEIGHTS, ObjectiveWeights
from policy.queue_rule import QueueRule

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


@dataclass(slots=True, kw_only=True)
class Arrival:
    """The task to be decided on, one a node: [nodes], and what it would be on each device."""

    weight: Floats  #: [nodes]
    deadline_s: Floats  #: [nodes] from now; inf: none
    scale_s: Floats  #: [nodes] what completion time is measured in: the deadline, or a nominal one
    model: Ints  #: [nodes] which model it needs, 0-62
    service_s: Floats  #: how long it occupies the device, without loading
    tail_s: Floats  #: from leaving the device to being complete: the answer's way back
    load_s: Floats  #: loading its model, when it is not there
    energy_j: Floats  #: of the service
    load_j: Floats
    key: Floats  #: its place in the queue: higher goes first, equals in order of arrival


@dataclass(slots=True, kw_only=True)
class Waiting:
    """Reserved tasks: [slots, nodes, devices]; empty slots have service, load and rate 0 and no deadline."""

    service_s: Floats
    tail_s: Floats
    load_s: Floats
    model: Ints
    weight: Floats
    deadline_s: Floats  #: from now
    rate: Floats  #: 1 / what its completion time is measured in
    key: Floats


@dataclass(slots=True, kw_only=True)
class Situation:
    """Nodes at the moment of one decision each."""

    mask: Bools  #: which devices may be chosen
    device_class: Ints  #: index into policy.features.CLASSES
    arrival: Arrival
    waiting: Waiting
    running: Ints
    queued: Ints
    remaining_s: Floats  #: of what runs, as far as it can be expected
    resident: Ints  #: bit per model that is loaded
    free_memory: Floats  #: share of the memory for models that is free
    prediction: Floats  #: recent measured / expected run time
    recent_share: Floats  #: share of recent tasks that came here
    recent_misses: Floats  #: share of recent tasks here that missed
    doomed_last: bool = True  #: whether what can no longer meet its deadline goes behind the rest


@dataclass(slots=True, kw_only=True)
class Plan:
    """What one more task would mean on each device: [nodes, devices]; seconds from now."""

    load_s: Floats  #: loading its model, 0 where it is or will be there
    backlog_s: Floats  #: until everything reserved is done
    finish_s: Floats  #: its completion at its place in the queue
    last_s: Floats  #: its completion behind everything
    energy_j: Floats
    own_cost: Floats  #: at its place
    last_cost: Floats  #: behind everything
    added_cost: Floats  #: what it costs the tasks that wait there
    doomed: Ints  #: how many of those cannot meet their deadline any more

    @property
    def increase(self) -> Floats:
        """The whole increase of the expected cost."""
        total: Floats = self.own_cost + self.added_cost
        return total


def plan(situation: Situation, weights: ObjectiveWeights = DEFAULT_WEIGHTS, place: int | None = None) -> Plan:
    """Return what the arriving task would mean on each device.

    Follows the queue twice side by side, without and with the task: in key order, the doomed behind the rest.
    place: the task's position in every queue (at the end of shorter ones); None: by its key.
    """
    without, with_it = _Line(situation), _Line(situation)
    a = situation.arrival
    shape = situation.mask.shape
    placed: Any = np.zeros(shape, dtype=bool)
    bit = np.int64(1) << a.model[:, None]
    new = _Task(
        a.service_s,
        a.tail_s,
        a.load_s,
        bit,
        a.deadline_s[:, None],
        1.0 / a.scale_s[:, None],
        a.weight[:, None],
    )
    for slot in range(situation.waiting.key.shape[0]):
        task = _slot(situation.waiting, slot)
        due = ~placed & (a.key > situation.waiting.key[slot] if place is None else slot == place)
        if due.any():
            with_it.add_new(new, due)
            placed |= due
        without.add(task)
        with_it.add(task)
    with_it.add_new(new, ~placed)
    energy_j = a.energy_j + np.where(with_it.new_load_s > 0, a.load_j, 0.0)
    finish_s = with_it.new_finish()
    last_s = without.end_s + without.doomed_s + _load(new, without.planned) + a.service_s + a.tail_s
    base = weights.energy * energy_j
    own = _cost(finish_s, new, weights) + base
    return Plan(
        load_s=with_it.new_load_s,
        backlog_s=without.end_s + without.doomed_s,
        finish_s=finish_s,
        last_s=last_s,
        energy_j=energy_j,
        own_cost=own,
        last_cost=_cost(last_s, new, weights) + base,
        added_cost=with_it.cost(weights) - without.cost(weights),
        doomed=without.doomed,
    )


@dataclass(slots=True)
class _Task:
    service_s: Any
    tail_s: Any
    load_s: Any
    bit: Any
    deadline_s: Any
    rate: Any
    weight: Any


def _slot(waiting: Waiting, slot: int) -> _Task:
    return _Task(
        waiting.service_s[slot],
        waiting.tail_s[slot],
        waiting.load_s[slot],
        np.int64(1) << waiting.model[slot],
        waiting.deadline_s[slot],
        waiting.rate[slot],
        waiting.weight[slot],
    )


def _load(task: _Task, planned: Any) -> Any:
    return np.where(planned & task.bit, 0.0, task.load_s)


def _cost(finish_s: Any, task: _Task, weights: ObjectiveWeights) -> Any:
    missed = finish_s > task.deadline_s
    return weights.violation * (task.weight * missed) + weights.completion * (finish_s * task.rate)


class _Line:
    """One queue as it is expected to run: what meets its deadline first, the doomed after that.

    The doomed finish at (end of the rest + what is doomed before them + their own service), so their
    completion cost is rate·end + rate·own offset: two sums instead of a second pass.
    """

    __slots__ = (
        "_completion", "_doomed_completion", "_doomed_rate", "_missed", "_new_doomed", "_new_offset",
        "_new_tail", "doomed", "doomed_last", "doomed_s", "end_s", "new_load_s", "planned",
    )  # fmt: skip

    def __init__(self, situation: Situation) -> None:
        shape = situation.mask.shape
        self.end_s: Any = situation.remaining_s.copy()
        self.planned: Any = situation.resident.copy()
        self.doomed_last = situation.doomed_last
        self.doomed_s: Any = np.zeros(shape)
        self.doomed: Any = np.zeros(shape, dtype=np.int64)
        self._completion: Any = np.zeros(shape)
        self._missed: Any = np.zeros(shape)
        self._doomed_rate: Any = np.zeros(shape)
        self._doomed_completion: Any = np.zeros(shape)
        self.new_load_s: Any = np.zeros(shape)
        self._new_offset: Any = np.zeros(shape)
        self._new_doomed: Any = np.zeros(shape, dtype=bool)
        self._new_tail: Any = 0.0

    def add(self, task: _Task) -> None:
        """Take the next waiting task of every device in."""
        span = _load(task, self.planned) + task.service_s
        self.planned |= np.where(task.service_s > 0, task.bit, 0)
        late = self.end_s + span + task.tail_s > task.deadline_s
        self._missed += task.weight * late
        self.doomed += late
        back = late if self.doomed_last else np.zeros_like(late)
        self.end_s += np.where(back, 0.0, span)
        self.doomed_s += np.where(back, span, 0.0)
        self._completion += np.where(back, 0.0, (self.end_s + task.tail_s) * task.rate)
        self._doomed_rate += np.where(back, task.rate, 0.0)
        self._doomed_completion += np.where(back, (self.doomed_s + task.tail_s) * task.rate, 0.0)

    def add_new(self, task: _Task, where: Any) -> None:
        """Take the arriving task in on the devices where its turn has come."""
        load_s = _load(task, self.planned)
        span = load_s + task.service_s
        self.planned |= np.where(where, task.bit, 0)
        late = self.end_s + span + task.tail_s > task.deadline_s
        back = (late & where) if self.doomed_last else np.zeros_like(where)
        front = where & ~back
        self.end_s += np.where(front, span, 0.0)
        self.doomed_s += np.where(back, span, 0.0)
        self.new_load_s = np.where(where, load_s, self.new_load_s)
        self._new_offset = np.where(front, self.end_s, np.where(back, self.doomed_s, self._new_offset))
        self._new_doomed |= back
        self._new_tail = task.tail_s

    def new_finish(self) -> Any:
        """When the arriving task is complete."""
        return np.where(self._new_doomed, self.end_s, 0.0) + self._new_offset + self._new_tail

    def cost(self, weights: ObjectiveWeights) -> Any:
        """Expected cost of the waiting tasks, without their energy."""
        completion = self._completion + self._doomed_rate * self.end_s + self._doomed_completion
        return weights.violation * self._missed + weights.completion * completion


@dataclass(slots=True, kw_only=True)
class Picks:
    """The devices chosen, [nodes]. place: positions in their queues; None: where the rule puts them."""

    device: Ints
    place: Ints | None = None


@runtime_checkable
class ManyScheduler(Protocol):
    """The array form of policy.port.Scheduler: the same choices for many nodes at once."""

    @property
    def name(self) -> str:
        """Its name in settings and decisions."""
        ...

    @property
    def queue_rule(self) -> QueueRule:
        """In which order devices take what it reserves."""
        ...

    def choose_many(self, situation: Situation, planned: Plan) -> Picks:
        """Pick a device in the mask on every node (each has one).  planned: plan() of the situation."""
        ...
