"""A scenario of the twin as episodes of the array engine: one episode a node, with the very same arrivals.

Owns the translation, and says what gets lost in it: nodes are apart from each other, the engine knows neither
faults nor failing attempts nor commits, and a device is one slot that runs what it is given in the scenario's
seconds. The link is up at nodes that no fault ever cuts off, and down at the others.
"""

from __future__ import annotations

from random import Random
from typing import Any

import msgspec
import numpy as np

from policy.features import CLASSES
from policy.objective import NOMINAL_DEADLINE_S, PRIORITY_WEIGHTS
from policy.situation import ManyScheduler
from twin.fleet.batch import stack
from twin.fleet.engine import Fleet
from twin.fleet.kinds import KINDS, LINK_JOULE_PER_TASK, LINK_OVERHEAD_S
from twin.fleet.scenario import OFFLOAD, Episode
from twin.fleet.scenario import Scenario as Drawn
from twin.scenario.arrivals import Arrival, arrivals, stream_name
from twin.scenario.faults import Cut, Deaf, Mute, Partition
from twin.scenario.language import Group, Load, Scenario, names_of, select

#: What a task may need, in the order in which the engine counts them as kinds.
_NEEDS = ("any", "gpu", "npu", "tpu", "none")
_CUTS = (Cut, Partition, Deaf, Mute)
_SHORTEST_S = 1e-4


class NodeFigures(msgspec.Struct, frozen=True, kw_only=True):
    """What the array engine finds for one node."""

    node: str
    tasks: int
    per_s: float  #: tasks that ended, over the time from the first arrival to the last end
    mean_s: float  #: from arrival to completion
    longest_s: float
    busy: float  #: share of the time that its devices were at work
    offloaded: float  #: share that left over the link


def run_on_fleet(
    scenario: Scenario, seed: int, scheduler: ManyScheduler, *, begin_s: float = 0.0
) -> list[NodeFigures]:
    """Run a scenario's load on the array engine.  begin_s: of the load, seconds of the world."""
    found = []
    for group in scenario.group:
        for name in names_of(group):
            episode = episode_of(scenario, seed, group, name, begin_s=begin_s)
            if episode is not None:
                found.append(_figures(name, _play(episode, scheduler)))
    return found


def episode_of(
    scenario: Scenario, seed: int, group: Group, name: str, *, begin_s: float = 0.0
) -> Episode | None:
    """Return a node's part of a scenario as an episode; None when nothing arrives there."""
    tasks = sorted(_tasks(scenario, seed, name, begin_s), key=lambda task: task[0].at_s)
    if not tasks:
        return None
    streams = [arrival for arrival, _ in tasks]
    loads = [load for _, load in tasks]
    priority = np.array([load.priority for load in loads], dtype=np.int64)
    takes_s = np.array([min(one.takes_s, load.max_runtime_s) for one, load in tasks])
    # A node knows what a kind takes on average, and learns what a task took when it is over.
    expected_s = np.array([max(sum(load.runtime_s) / 2.0, _SHORTEST_S) for load in loads])
    return Episode(
        **_site(group, has_link=not _is_ever_cut_off(scenario, name)),
        arrival_s=np.array([one.at_s for one in streams]),
        kind=np.array([_NEEDS.index(load.needs) for load in loads], dtype=np.int64),
        size=expected_s,
        priority=priority,
        weight=np.array(PRIORITY_WEIGHTS)[priority],
        deadline_s=np.full(len(tasks), NOMINAL_DEADLINE_S),  # no load has one: completion is measured in it
        noise=np.maximum(takes_s, _SHORTEST_S) / expected_s,
    )


def _tasks(scenario: Scenario, seed: int, name: str, begin_s: float) -> list[tuple[Arrival, Load]]:
    found: list[tuple[Arrival, Load]] = []
    for number, load in enumerate(scenario.load):
        if name in select(scenario, load.on):
            from_s = begin_s + load.begin_s
            end_s = from_s + (load.for_s or scenario.load_s - load.begin_s)
            rng = Random(f"{seed}:{stream_name(number, name)}")
            found += [(one, load) for one in arrivals(load, rng, begin_s=from_s, end_s=end_s)]
    return found


def _is_ever_cut_off(scenario: Scenario, name: str) -> bool:
    cuts = [fault for fault in scenario.fault if isinstance(fault, _CUTS)]
    return any(fault.on.startswith("some:") or name in select(scenario, fault.on) for fault in cuts)


def _site(group: Group, *, has_link: bool) -> dict[str, Any]:
    """One device for each slot; every model is loaded, for a scenario's run times have no loading in them."""
    classes = [kind for kind in group.devices for _ in range(group.slots)] + ["offload"] * has_link
    rows, kinds = len(classes), len(KINDS)
    supported = np.zeros((rows, kinds), dtype=bool)
    for row, kind in enumerate(classes):
        for number, needs in enumerate(_NEEDS):
            supported[row, number] = needs in ("any", kind) or (needs == "none" and kind == "cpu")
    if has_link:
        supported[-1, : len(_NEEDS)] = True
    unit_s = np.where(supported, 1.0, 0.0)
    unit_j = np.where(supported, 10.0, 0.0)
    if has_link:
        unit_j[-1] += np.where(supported[-1], LINK_JOULE_PER_TASK, 0.0)
    tail_s = np.zeros((rows, kinds))
    if has_link:
        tail_s[-1] = LINK_OVERHEAD_S
    return {
        "device_class": np.array([OFFLOAD if one == "offload" else CLASSES.index(one) for one in classes]),
        "unit_s": unit_s,
        "supported": supported,
        "tail_s": tail_s,
        "unit_j": unit_j,
        "load_s": np.zeros((rows, kinds)),
        "load_j": np.zeros((rows, kinds)),
        "memory_mb": np.full(rows, 1e9),
        "resident": np.full(rows, (1 << kinds) - 1, dtype=np.int64),
    }


def _play(episode: Episode, scheduler: ManyScheduler) -> Fleet:
    fleet = Fleet(Drawn(tasks=len(episode.arrival_s)), queue_rule=scheduler.queue_rule)
    fleet.start(stack([episode]))
    while not fleet.done:
        picks = scheduler.choose_many(fleet.situation(), fleet.plan())
        fleet.step(picks.device, picks.place)
    return fleet


def _figures(name: str, fleet: Fleet) -> NodeFigures:
    arrival_s, finish_s = fleet.batch.arrival_s[0], fleet.finish_s[0]
    lived_s, span_s = finish_s - arrival_s, float(finish_s.max() - arrival_s[0])
    own = fleet.batch.device_class[0] != OFFLOAD
    return NodeFigures(
        node=name,
        tasks=len(arrival_s),
        per_s=round(len(arrival_s) / span_s, 6),
        mean_s=round(float(lived_s.mean()), 6),
        longest_s=round(float(lived_s.max()), 6),
        busy=round(float(fleet.busy_s[0][own].sum()) / (span_s * int(own.sum())), 6),
        offloaded=round(float((~own)[fleet.device[0]].mean()), 6),
    )
