"""Which schedulers there are. Adding one: a file beside this one, and one line here."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping

from policy.baselines.earliest_deadline import EarliestDeadline
from policy.baselines.fifo_first_fit import FifoFirstFit
from policy.baselines.full_cost import FullCost
from policy.baselines.least_allocated import LeastAllocated
from policy.baselines.least_energy import LeastEnergy
from policy.baselines.least_loaded import LeastLoaded
from policy.baselines.min_increase import MinIncrease
from policy.baselines.min_increase_replan import MinIncreaseReplan
from policy.baselines.shortest_expected_completion import ShortestExpectedCompletion
from policy.port import Scheduler
from skerry.errors import SettingsError

#: The lowest cost of all on paired episodes, see docs/reference/schedulers.md.
DEFAULT_SCHEDULER = MinIncrease.name

SCHEDULERS: Mapping[str, Callable[[], Scheduler]] = {
    FifoFirstFit.name: FifoFirstFit,
    LeastLoaded.name: LeastLoaded,
    LeastAllocated.name: LeastAllocated,
    ShortestExpectedCompletion.name: ShortestExpectedCompletion,
    EarliestDeadline.name: EarliestDeadline,
    LeastEnergy.name: LeastEnergy,
    FullCost.name: FullCost,
    MinIncrease.name: MinIncrease,
    MinIncreaseReplan.name: MinIncreaseReplan,
}


def make_scheduler(name: str) -> Scheduler:
    """Return the scheduler of that name.  Raises SettingsError that says the nearest known one."""
    factory = SCHEDULERS.get(name)
    if factory is None:
        near = difflib.get_close_matches(name, SCHEDULERS, n=1, cutoff=0.4)
        hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(sorted(SCHEDULERS))}"
        raise SettingsError(f"there is no scheduler {name!r}; {hint}")
    return factory()
