"""Making a scenario that breaks a law as small as it can be while it still breaks it.

Owns what is tried, in which order: what takes most away comes first. The search ends by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from skerry.errors import SpecError
from twin.scenario.language import Scenario, check_scenario

replace = msgspec.structs.replace


def shrink(scenario: Scenario, still_fails: Callable[[Scenario], bool], *, tries: int) -> Scenario:
    """Return the smallest scenario found that still fails.  tries: runs at most."""
    left = tries
    is_smaller = True
    while is_smaller:
        is_smaller = False
        for candidate in _smaller(scenario):
            if left <= 0:
                return scenario
            if not _hangs_together(candidate):
                continue
            left -= 1
            if still_fails(candidate):
                scenario, is_smaller = candidate, True
                break
    return scenario


def _hangs_together(scenario: Scenario) -> bool:
    try:
        check_scenario(scenario)
    except SpecError:
        return False
    devices = {device for group in scenario.group for device in group.devices}
    return all(load.needs == "any" or load.needs in devices for load in scenario.load)


def _smaller(scenario: Scenario) -> Iterator[Scenario]:
    """Yield scenarios with a little less in them."""
    for table in ("fault", "load", "group"):
        rows: tuple[Any, ...] = getattr(scenario, table)
        if len(rows) > (table != "fault"):
            for number in range(len(rows)):
                yield replace(scenario, **{table: rows[:number] + rows[number + 1 :]})
    for table, make in (("fault", _smaller_fault), ("load", _smaller_load), ("group", _smaller_group)):
        rows = getattr(scenario, table)
        for number, row in enumerate(rows):
            for less in make(row):
                yield replace(scenario, **{table: (*rows[:number], less, *rows[number + 1 :])})
    if scenario.load_s > 2:
        yield replace(scenario, load_s=float(int(scenario.load_s / 2)))


def _smaller_fault(fault: Any) -> Iterator[Any]:
    if fault.times > 1:
        yield replace(fault, times=1)
        yield replace(fault, times=fault.times - 1)
    if fault.spread_s:
        yield replace(fault, spread_s=0.0)
    for name in ("for_s", "down_s"):
        length_s = getattr(fault, name, 0.0)
        if length_s > 1:
            yield replace(fault, **{name: round(length_s / 2, 1)})


def _smaller_load(load: Any) -> Iterator[Any]:
    usual = {f.name: f.default for f in msgspec.structs.fields(load) if f.default is not msgspec.NODEFAULT}
    if load.rate_per_s > 0.05:
        yield replace(load, rate_per_s=round(load.rate_per_s / 2, 3))
    for name in ("fails", "expires_after_s", "ordering_keys", "payload_bytes", "priority", "max_runtime_s"):
        if getattr(load, name) != usual[name]:
            yield replace(load, **{name: usual[name]})


def _smaller_group(group: Any) -> Iterator[Any]:
    if group.count > 1:
        yield replace(group, count=group.count - 1)
    if group.slots > 1:
        yield replace(group, slots=1)
