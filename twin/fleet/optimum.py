"""The exact optimum of small episodes, all arrivals known beforehand: what no scheduler can beat.

Every order of every subset on each device (109,600 for 8 tasks) gives the cheapest cost of a subset there,
and a pass over subsets combines the devices. A device waits for a task that has not arrived when its order
says so, so every schedule that an optimum can need is among them. Exact while all models fit, so that none is
put out.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache

import numpy as np
from numpy.typing import NDArray

from policy.objective import DEFAULT_WEIGHTS, ObjectiveWeights, Terms, cost
from twin.fleet.kinds import KINDS
from twin.fleet.scenario import Episode, Scenario, draw

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

#: Beyond this the orders no longer fit in memory.
MOST_TASKS = 9
#: Bursts of 8 tasks that start with no model loaded, without noise: what the benchmark and the tests use.
SMALL = Scenario(devices=(5, 5), tasks=8, cold=True, noise=0.0, load_factor=2.0)
_ROOM_MB = 1e9


def small_episode(seed: int, number: int, scenario: Scenario = SMALL) -> Episode:
    """Return an episode whose optimum is exact: few tasks, no noise, room for every model."""
    episode = draw(scenario, seed, number)
    return replace(episode, memory_mb=np.full_like(episode.memory_mb, _ROOM_MB))


def optimum(episode: Episode, weights: ObjectiveWeights = DEFAULT_WEIGHTS) -> float:
    """Return the least possible cost per task.  Raises ValueError for more than MOST_TASKS tasks."""
    tasks = len(episode.kind)
    if tasks > MOST_TASKS:
        raise ValueError(f"{tasks} tasks; the optimum is computed for at most {MOST_TASKS}")
    best = np.full(1 << tasks, np.inf)
    best[0] = 0.0
    for device in range(len(episode.device_class)):
        best = _combine(best, _cheapest(episode, device, weights), tasks)
    return float(best[-1]) / tasks


@dataclass(frozen=True)
class _Level:
    """Orders of one length: the order one task shorter, the task appended, and the set of all of them."""

    parent: Ints
    task: Ints
    subset: Ints


@cache
def _levels(tasks: int) -> tuple[_Level, ...]:
    levels, subsets = [], np.zeros(1, dtype=np.int64)
    for _ in range(tasks):
        free = (subsets[:, None] >> np.arange(tasks)) & 1 == 0
        parent, task = np.nonzero(free)
        subsets = subsets[parent] | (np.int64(1) << task)
        levels.append(_Level(parent, task, subsets))
    return tuple(levels)


def _cheapest(e: Episode, device: int, weights: ObjectiveWeights) -> Floats:
    """Return the least cost of doing each subset on this device: [subsets]; inf where it cannot."""
    kind = e.kind
    service = e.unit_s[device, kind] * e.size
    best = np.full(1 << len(kind), np.inf)
    best[0] = 0.0
    now, total = np.zeros(1), np.zeros(1)
    loaded = np.full(1, e.resident[device], dtype=np.int64)
    for level in _levels(len(kind)):
        task, of = level.task, kind[level.task]
        missing = (loaded[level.parent] >> of) & 1 == 0
        begin = np.maximum(now[level.parent], e.arrival_s[task])
        now = begin + (np.where(missing, e.load_s[device, of], 0.0) + service[task])
        energy = e.unit_j[device, of] * e.size[task] + np.where(missing, e.load_j[device, of], 0.0)
        spent = _cost(e, task, now + e.tail_s[device, of], energy, weights)
        total = total[level.parent] + np.where(e.supported[device, of], spent, np.inf)
        loaded = loaded[level.parent] | (np.int64(1) << of)
        np.minimum.at(best, level.subset, total)
    return best


def _cost(e: Episode, task: Ints, finish: Floats, energy: Floats, weights: ObjectiveWeights) -> Floats:
    useful = np.array([k.reference_s for k in KINDS])[e.kind[task]] * e.size[task]
    late = finish > e.arrival_s[task] + e.deadline_s[task]
    completion = (finish - e.arrival_s[task]) / e.deadline_s[task]
    spent: Floats = cost(Terms(useful, completion, energy, e.weight[task] * late), weights)
    return spent


@cache
def _splits(tasks: int) -> tuple[Ints, Ints]:
    """Every pair (set, part of it)."""
    sets = np.arange(1 << tasks)
    whole, part = np.nonzero((sets[:, None] & sets[None, :]) == sets[None, :])
    return whole, part


def _combine(before: Floats, here: Floats, tasks: int) -> Floats:
    """Return the least cost of each subset when this device takes any part of it."""
    whole, part = _splits(tasks)
    best = np.full(1 << tasks, np.inf)
    np.minimum.at(best, whole, before[whole & ~part] + here[part])
    return best
