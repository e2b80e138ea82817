"""Looking for a scenario that breaks a law: random ones, one after another, until the time is up.

Owns the search and what is told of a find. The same seed draws the same scenarios.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from random import Random

import msgspec

from skerry.ids import TaskId
from twin.faithful.fuzz_draw import draw_scenario
from twin.faithful.fuzz_shrink import shrink
from twin.faithful.run import Broken, Report, run_scenario
from twin.faithful.staging import Stage
from twin.scenario.language import Scenario
from twin.scenario.written import write_scenario

#: Runs in which a find is made smaller, at most.
SHRINK_TRIES = 80
#: Lines of the event log that are told, the newest.
LOG_LINES = 40


class Find(msgspec.Struct, frozen=True, kw_only=True):
    """A scenario that breaks a law. scenario: the smallest found, as TOML; run it with this seed."""

    seed: int
    number: int
    broken: tuple[Broken, ...]
    scenario: str
    story: tuple[str, ...]  #: of the first broken law's task, by whoever knows it
    log: tuple[str, ...]  #: the event log's last lines that name it, and what went wrong around it


class Fuzzed(msgspec.Struct, frozen=True, kw_only=True):
    """What a search came to."""

    seed: int
    scenarios: int
    tasks: int
    seconds: float
    find: Find | None = None


class _Run:
    """One run, with what is told if it is a find."""

    def __init__(self, scenario: Scenario, seed: int) -> None:
        self._lines: deque[str] = deque(maxlen=20_000)
        self.story: tuple[str, ...] = ()
        self.report: Report | None = None
        try:
            self.report = run_scenario(
                scenario, seed, log=self._lines.append, inspect=self._inspect, until_quiet=True
            )
            self.broken = self.report.broken
        except Exception as error:  # whatever breaks a process is a find
            what = f"a process broke: {type(error).__name__}: {error}"
            self.broken = (Broken(law=9, at_s=0.0, node="", what=what),)

    def log(self) -> tuple[str, ...]:
        """Return the lines about the first broken law's task."""
        names = [name for name in (self.broken[0].task_id, " fault ", " starts", " has no power") if name]
        return tuple(line for line in self._lines if any(name in line for name in names))[-LOG_LINES:]

    def _inspect(self, stage: Stage) -> None:
        first = next((v for v in stage.witness.violations if v.task_id), None)
        if first is not None:
            self.story = tuple(_story(stage, TaskId(first.task_id)))


def fuzz(
    *,
    seconds: float,
    seed: int,
    most: int | None = None,
    shrinks: bool = True,
    progress: Callable[[int, float], None] = lambda done, spent_s: None,
) -> Fuzzed:
    """Search until the time is up, or so many scenarios were run, or a law is broken.

    shrinks: make a find as small as it can be.
    """
    begun = time.perf_counter()
    done = tasks = 0
    find: Find | None = None
    while find is None and time.perf_counter() - begun < seconds and (most is None or done < most):
        scenario = draw_scenario(Random(f"fuzz {seed} {done}"), f"fuzz-{seed}-{done}")
        run = _Run(scenario, seed)
        done += 1
        tasks += run.report.submitted if run.report else 0
        if run.broken:
            find = _find(scenario, seed, done, run, tries=SHRINK_TRIES if shrinks else 0)
        progress(done, time.perf_counter() - begun)
    spent_s = round(time.perf_counter() - begun, 1)
    return Fuzzed(seed=seed, scenarios=done, tasks=tasks, seconds=spent_s, find=find)


def _find(scenario: Scenario, seed: int, number: int, run: _Run, *, tries: int) -> Find:
    """Make it small, as long as the same law is broken, and tell of the smallest."""
    law = run.broken[0].law
    best = run

    def still_fails(candidate: Scenario) -> bool:
        nonlocal best
        tried = _Run(candidate, seed)
        if any(broken.law == law for broken in tried.broken):
            best = tried
            return True
        return False

    smallest = shrink(scenario, still_fails, tries=tries)
    return Find(
        seed=seed,
        number=number,
        broken=best.broken,
        scenario=write_scenario(smallest),
        story=best.story,
        log=best.log(),
    )


def _story(stage: Stage, task_id: TaskId) -> list[str]:
    """Tell what each store and the ledger know of a task."""
    lines = []
    for node in stage.nodes.values():
        if node.agent is not None:
            events = node.agent.parts.store.story(task_id)
            lines += [f"{node.name}: {' '.join(_words(event))}" for event in events]
    entry = stage.cloud.ledger.task(task_id) if stage.cloud.runtime and stage.cloud.ledger else None
    if entry is not None:
        lines.append(f"ledger: {entry.state}, {entry.node or 'nowhere'}, fence {entry.fence}")
    return lines


def _words(event: msgspec.Struct) -> list[str]:
    told = ((field, getattr(event, field)) for field in event.__struct_fields__)
    return [f"{name}={value}" for name, value in told if value not in (None, "", ()) and name != "decision"]
