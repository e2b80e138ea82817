"""Random scenarios: small worlds with random work and random trouble, from a stream of draws.

Owns how likely what is. Everything drawn ends by itself, so that what is left undone at the end is a fault of
the product.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from twin.scenario import faults
from twin.scenario.language import CoordinatorPart, Group, Load, Scenario, check_scenario, names_of

_When = dict[str, Any]  #: what all faults share
#: Tasks of one scenario, at most, roughly.
MOST_TASKS = 60
#: Of one load at one node: what one device can do in time, after all that goes wrong. Seconds.
MOST_WORK_S = 80.0
#: After load and faults: births are said again after a minute at most, quarantined nodes after five.
SETTLE_S, SETTLE_AFTER_CLONES_S = 330.0, 700.0
#: Shorter than an ordinary outage, longer, and longer than all of it.
_LEASES_S = (10.0, 10.0, 60.0, 900.0)


def draw_scenario(rng: Random, name: str) -> Scenario:
    """Return the next scenario."""
    groups = _groups(rng)
    load_s = rng.choice((15.0, 30.0, 60.0))
    has_npu = any("npu" in group.devices for group in groups)
    loads = tuple(_load(rng, load_s, has_npu=has_npu) for _ in range(rng.randint(1, 3)))
    troubles = tuple(_fault(rng, groups, load_s) for _ in range(rng.randint(1, 4)))
    theme = rng.choice(_THEMES)
    if theme is not None and has_npu:
        load, more = theme(rng, load_s, names_of(groups[-1])[0])
        loads, troubles = (*loads[:2], *load), (*troubles[:2], *more)
    has_clone = any(isinstance(trouble, faults.Clone) for trouble in troubles)
    settle_s = SETTLE_AFTER_CLONES_S if has_clone else SETTLE_S
    goes_on_s = max(0.0, max(map(faults.over_s, troubles)) - load_s)
    return check_scenario(
        Scenario(
            name=name,
            load_s=load_s,
            settle_s=round(settle_s + goes_on_s, 1),
            coordinator=CoordinatorPart(lease_s=rng.choice(_LEASES_S)),
            group=groups,
            load=loads,
            fault=troubles,
        )
    )


def _groups(rng: Random) -> tuple[Group, ...]:
    home = Group(name="home", count=rng.choice((1, 1, 2)), slots=rng.choice((1, 4)))
    worker = Group(
        name="worker", count=rng.choice((1, 2, 2)), devices=("cpu", "npu"), slots=rng.choice((1, 4))
    )
    return (home,) if rng.random() < 0.2 else (home, worker)


def _load(rng: Random, load_s: float, *, has_npu: bool) -> Load:
    longest_s = rng.choice((0.5, 2.0, 20.0))
    tasks = min(rng.randint(3, MOST_TASKS // 3), int(MOST_WORK_S / longest_s))
    is_short_of_time = longest_s > 5.0 and rng.random() < 0.5
    return Load(
        on=rng.choice(("all", "home")),
        rate_per_s=round(max(tasks / load_s, 0.05), 3),
        arrival=rng.choice(("steady", "poisson")),
        runtime_s=(0.1, longest_s),
        fails=rng.choice((0.0, 0.0, 0.4)),
        retries=1 if is_short_of_time else rng.choice((0, 2, 6)),
        max_runtime_s=5.0 if is_short_of_time else 300.0,
        effect=rng.choice(("idempotent", "idempotent", "at_most_once")),
        priority=rng.randint(0, 9),
        needs=rng.choice(("any", "npu")) if has_npu else "any",
        expires_after_s=rng.choice((None, None, 15.0, 60.0)),
        ordering_keys=rng.choice((0, 0, 2)),
        payload_bytes=rng.choice((16, 16, 4000)),
    )


def _fault(rng: Random, groups: tuple[Group, ...], load_s: float) -> faults.Fault:
    who = rng.choice(("all", "some:1", *(group.name for group in groups)))
    times = rng.choice((1, 1, 2, 5))
    at_s = round(rng.uniform(0.0, load_s), 1)
    for_s = round(rng.choice((0.3, 5.0, 20.0, 45.0)) * rng.uniform(0.5, 1.5), 1)
    every_s = round(for_s + rng.uniform(1.0, 10.0), 1)
    when: _When = {
        "at_s": at_s,
        "times": times,
        "every_s": every_s,
        "spread_s": round(rng.uniform(0.0, 3.0), 1),
    }
    make = rng.choice(_KINDS)
    return make(rng, who, for_s, when)


_Make = Callable[[Random, str, float, "_When"], faults.Fault]


def _wire(rng: Random, who: str, for_s: float, when: _When) -> faults.Fault:
    return faults.Wire(
        **_once(when),
        for_s=for_s,
        delay_s=(0.01, rng.choice((0.05, 2.0))),
        loss=rng.choice((0.0, 0.1, 0.4)),
        duplication=rng.choice((0.0, 0.3)),
        reordering=rng.random() < 0.5,
    )


def _power(rng: Random, who: str, for_s: float, when: _When) -> faults.Fault:
    wall_s = rng.choice((None, None, 0.0))
    right = None if wall_s is None else rng.choice((None, 20.0))
    down_s = round(rng.uniform(0.5, 5.0), 1)
    return faults.PowerCut(**_spaced(when, down_s), on=who, down_s=down_s, wall_s=wall_s, right_after_s=right)


def _step(rng: Random, who: str, for_s: float, when: _When) -> faults.Fault:
    by_s = rng.choice((3600.0, -3600.0, 6.3e8, 40.0))
    return faults.ClockStep(**when, on=who, by_s=by_s, coordinator=rng.random() < 0.7)


def _clone(rng: Random, who: str, for_s: float, when: _When) -> faults.Fault:
    return faults.Clone(**_once(when), on="some:1", for_s=max(for_s, 10.0))


def _kill(rng: Random, who: str, for_s: float, when: _When) -> faults.Fault:
    down_s = round(rng.choice((0.1, 2.0, 30.0)) * rng.uniform(0.5, 1.5), 2)
    return faults.AgentKill(**_spaced(when, down_s), on=who, down_s=down_s, in_commit=rng.random() < 0.5)


def _cloud_kill(rng: Random, who: str, for_s: float, when: _When) -> faults.Fault:
    down_s = round(rng.choice((0.2, 5.0)) * rng.uniform(0.5, 1.5), 2)
    return faults.CoordinatorKill(**_spaced(when, down_s), down_s=down_s, in_commit=rng.random() < 0.5)


def _throttle(rng: Random, who: str, for_s: float, when: _When) -> faults.Fault:
    return faults.Throttle(**when, for_s=for_s, retry_after_s=rng.choice((2.0, 30.0)))


def _slow(rng: Random, who: str, for_s: float, when: _When) -> faults.Fault:
    return faults.SlowDisk(**when, on=who, for_s=for_s, commit_s=rng.choice((0.1, 1.0)))


_LASTING = (faults.Cut, faults.Partition, faults.Deaf, faults.Mute, faults.Suspend, faults.DiskFull)


def _lasting(kind: Any) -> _Make:
    return lambda rng, who, for_s, when: kind(**when, on=who, for_s=for_s)


_KINDS: tuple[_Make, ...] = (
    *(_lasting(kind) for kind in _LASTING),
    _lasting(faults.Cut),
    _wire,
    _wire,
    lambda rng, who, for_s, when: faults.BrokerCrash(**_spaced(when, 6.0), down_s=5.0),
    _throttle,
    _slow,
    lambda rng, who, for_s, when: faults.DeviceFault(**_once(when), on=who, for_s=min(for_s, 20.0)),
    _cloud_kill,
    _kill,
    _kill,
    _power,
    _power,
    _step,
    _clone,
)


def _once(when: _When) -> _When:
    return {"at_s": when["at_s"]}


def _spaced(when: _When, down_s: float) -> _When:
    return {**when, "every_s": round(down_s + 1.0 + when["spread_s"], 1)}


_Part = tuple[tuple[Load, ...], tuple[faults.Fault, ...]]
#: load_s, and a node that others give work to
_Theme = Callable[[Random, float, str], _Part]


def _takeover(rng: Random, load_s: float, worker: str) -> _Part:
    """A node works on for others while it is cut off, for longer than its leases or not."""
    work = Load(on="home", rate_per_s=0.4, for_s=10.0, runtime_s=(5.0, 30.0), needs="npu", retries=2)
    kind = rng.choice((faults.Cut, faults.Partition, faults.Mute))
    cut = kind(at_s=round(rng.uniform(3.0, 12.0), 1), for_s=rng.choice((25.0, 40.0)), on=worker)
    return (work,), (cut,)


def _restarts_over_slow_wires(rng: Random, load_s: float, worker: str) -> _Part:
    """Agents are back before the word of their end has arrived."""
    wire = faults.Wire(at_s=0.0, for_s=load_s, delay_s=(0.1, 2.0), reordering=True)
    kill = faults.AgentKill(at_s=2.0, down_s=0.1, times=6, every_s=load_s / 8, spread_s=2.0)
    return (), (wire, kill)


def _kills_while_commands_come(rng: Random, load_s: float, worker: str) -> _Part:
    """Work goes out and its ends come home while both sides die in their commits."""
    work = Load(on="home", rate_per_s=1.0, needs="npu", effect=rng.choice(("idempotent", "at_most_once")))
    who = rng.choice(("home", "all"))
    kill = faults.AgentKill(
        at_s=1.0, down_s=0.5, times=8, every_s=load_s / 9, spread_s=1.0, on=who, in_commit=True
    )
    return (work,), (kill,)


def _clocks(rng: Random, load_s: float, worker: str) -> _Part:
    """Wall clocks jump while leases are held and times run."""
    work = Load(
        on="home",
        rate_per_s=0.4,
        for_s=15.0,
        runtime_s=(5.0, 20.0),
        needs="npu",
        effect=rng.choice(("idempotent", "at_most_once")),
        expires_after_s=120.0,
    )
    by_s = rng.choice((3600.0, 3600.0, -3600.0))
    step = faults.ClockStep(at_s=rng.uniform(5.0, 12.0), by_s=by_s, times=3, every_s=4.0, coordinator=True)
    return (work,), (step,)


_THEMES: tuple[_Theme | None, ...] = (
    None,
    _takeover,
    _takeover,
    _restarts_over_slow_wires,
    _kills_while_commands_come,
    _clocks,
    _clocks,
)
