"""The exhaustive check: every interleaving of two agents, two tasks and one coordinator, to a depth.

Every state of the undisturbed run is a station; from all of them at once it goes breadth first, so that a
trace is a shortest one. A step is one choice: a message arrives (any that is in flight, so that every order
is seen; one that never does is lost), arrives and stays (it comes twice), a process ends (at rest, or before
any commit of what it is doing) and begins again, an attempt ends, a plan is made, an application submits, or
time passes. Owns the choices, the states that were seen, and the trace.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import TypeVar

from skerry.ids import TaskId
from twin.faithful.exhaustive_laws import (
    AgentFacts,
    CloudFacts,
    broken_between,
    broken_by_step,
    broken_ends,
)
from twin.faithful.exhaustive_parts import Done, Parts
from twin.faithful.exhaustive_setting import AGENTS, CLOUD, NAMES, Setting
from twin.faithful.exhaustive_values import Bounds, Checked, Choice, World
from twin.faithful.exhaustive_words import words_of

_T = TypeVar("_T")

#: A state from which nothing ends within so many rounds of a fair schedule hangs.
FAIR_ROUNDS = 60


class FoundError(Exception):
    """What was looked for: something is broken. Its words, and the steps that led there."""

    def __init__(self, words: str, trace: tuple[str, ...]) -> None:
        super().__init__(words)
        self.words, self.trace = words, trace


class Search:
    """One check."""

    def __init__(self, setting: Setting, bounds: Bounds) -> None:
        """setting: the parts at rest, and the tasks that are submitted."""
        self._tasks = setting.tasks
        self._name = setting.name
        self._ids = tuple(TaskId(f"{number:032x}") for number in range(1, len(self._tasks) + 1))
        each = zip(self._ids, self._tasks, strict=True)
        self._once = [task_id for task_id, task in each if task.effect == "at_most_once"]
        self._bounds = bounds
        self._parts = Parts(setting)
        numbers = tuple(self._parts.add(part) for part in setting.parts)
        self._root = World(
            parts=numbers,
            flight=(),
            kept=tuple(self._parts.keep(*said) for said in setting.presence),
            promised=frozenset(),
            begun=(0,) * len(self._once),
            submitted=0,
            waits=0,
        )
        self._from: dict[World, tuple[World, Choice] | None] = {self._root: None}
        self._faults: dict[World, int] = {self._root: 0}
        self._well: set[World] = set()  #: followed to a good end
        self._holds: dict[tuple[tuple[int, ...], frozenset[TaskId]], str] = {}
        self._transitions = 0
        self._began = 0.0

    def run(self, progress: Callable[[int, int], None] | None = None) -> Checked:
        """Explore to the bounds, or to the first thing that is broken.  progress: told depth and states."""
        self._began = time.monotonic()
        broken, trace = "", tuple[str, ...]()
        by_depth: list[int] = []
        stations = depth = 0
        try:
            frontier = self._stations()
            stations = len(frontier)
            by_depth.append(stations)
            while frontier and depth < self._bounds.depth:
                frontier = self._next(frontier)
                depth += 1
                by_depth.append(len(frontier))
                if progress is not None:
                    progress(depth, len(self._faults))
            for world in frontier[:: max(1, len(frontier) // self._bounds.followed)]:
                self._follow(world)
        except FoundError as found:
            broken, trace = found.words, found.trace
        except TimeoutError:
            pass
        return Checked(
            tasks=self._name,
            bounds=self._bounds,
            stations=stations,
            depth=depth,
            states=len(self._faults),
            transitions=self._transitions,
            part_states=len(self._parts),
            steps_run=self._parts.steps,
            fair=len(self._well),
            by_depth=tuple(by_depth),
            wall_s=round(time.monotonic() - self._began, 1),
            broken=broken,
            trace=trace,
        )

    # --- forward

    def _stations(self) -> list[World]:
        """Return the states of the run in which nothing goes wrong."""
        world, found = self._root, [self._root]
        while (choice := next(self._events(world), None)) is not None:
            after = self._step(world, choice)
            self._from.setdefault(after, (world, choice))
            self._faults[after] = 0
            self._look_at(after)
            found.append(after)
            world = after
        return found

    def _next(self, frontier: list[World]) -> list[World]:
        reached = []
        for world in frontier:
            if time.monotonic() - self._began > self._bounds.seconds:
                raise TimeoutError
            faults = self._faults[world]
            for choice in self._choices(world):
                after_faults = faults + choice.is_fault
                if after_faults > self._bounds.faults:
                    continue
                self._transitions += 1
                after = self._step(world, choice)
                known = self._faults.get(after)
                if known is not None and known <= after_faults:
                    continue
                if known is None:
                    self._from[after] = (world, choice)
                    self._look_at(after)
                self._faults[after] = after_faults
                reached.append(after)
        return list(dict.fromkeys(reached))

    def _choices(self, world: World) -> Iterator[Choice]:
        for choice in self._events(world):
            yield choice
            if choice.place != CLOUD:
                for commit in self._done(world, choice).cuts:
                    yield choice._replace(cut_off_at=commit)
        for number in dict.fromkeys(world.flight):
            yield Choice(self._parts.messages[number].to, ("hear", number), is_kept=True)
        for place in range(len(world.parts)):
            yield Choice(place, ("crash",))
        if world.waits < self._bounds.waits:
            yield Choice(CLOUD, ("wait",))

    def _events(self, world: World) -> Iterator[Choice]:
        """What happens without a fault, but for the passing of time."""
        for number in dict.fromkeys(world.flight):
            yield Choice(self._parts.messages[number].to, ("hear", number))
        for place in AGENTS:
            for task_id in self._agent(world, place).running:
                yield Choice(place, ("end", task_id))
        if self._cloud(world).wants_plan:
            yield Choice(CLOUD, ("plan",))
        if world.submitted < len(self._tasks):
            yield self._submission(world.submitted)

    def _submission(self, number: int) -> Choice:
        return Choice(AGENTS[0], ("submit", self._ids[number], number))

    def _done(self, world: World, choice: Choice) -> Done:
        return self._parts.told(world.parts[choice.place], world.waits, choice.told, choice.cut_off_at)

    def _step(self, world: World, choice: Choice) -> World:
        """Return the state after a choice.  Raises FoundError when a part broke something by itself."""
        if choice.told[0] == "wait":
            return self._wait(world, choice)
        done = self._done(world, choice)
        flight = list(world.flight)
        if choice.told[0] == "hear" and not choice.is_kept:
            flight.remove(int(choice.told[1]))
        if choice.told[0] == "crash" and choice.place == CLOUD:
            flight += world.kept
        submitted = world.submitted + (choice.told[0] == "submit")
        return self._after(world._replace(submitted=submitted), choice.place, done, flight, choice)

    def _wait(self, world: World, choice: Choice) -> World:
        after = world._replace(waits=world.waits + 1)
        for place in range(len(world.parts)):
            done = self._parts.told(after.parts[place], after.waits, choice.told)
            after = self._after(after, place, done, list(after.flight), choice, since=world)
        return after

    def _after(
        self,
        world: World,
        place: int,
        done: Done,
        flight: list[int],
        choice: Choice,
        *,
        since: World | None = None,
    ) -> World:
        """Return the state with one part's step in it.  since: where the choice was made, if not in world."""
        facts = self._parts.facts
        before, after = facts[world.parts[place]], facts[done.after]
        promised, begun = self._witness(world, done)
        found = [*broken_by_step(before, after, done.seen)]
        if place == AGENTS[0] and isinstance(before, AgentFacts) and isinstance(after, AgentFacts):
            found += broken_ends(before, after, NAMES[place])
        if any(count > 1 for count in begun):
            found.append("law 3: a task that may take effect once only began twice")
        if found:
            raise FoundError(found[0], self._trace(since or world, choice))
        retained = [number for number in done.sent if self._parts.messages[number].is_retained]
        return world._replace(
            parts=_with(world.parts, place, done.after),
            flight=tuple(sorted((*flight, *done.sent))),
            kept=_with(world.kept, place, retained[-1]) if retained else world.kept,
            promised=promised,
            begun=begun,
        )

    def _witness(self, world: World, done: Done) -> tuple[frozenset[TaskId], tuple[int, ...]]:
        """Return what was promised, and how often each task that may begin once only began."""
        promised, begun = world.promised, world.begun
        for what, *words in done.seen:
            if what == "told":
                promised = promised | {TaskId(words[0])}
            elif what == "began" and words[0] in self._once:
                at = self._once.index(TaskId(words[0]))
                begun = _with(begun, at, begun[at] + 1)
        return promised, begun

    # --- what must hold

    def _look_at(self, world: World) -> None:
        key = (world.parts, world.promised)
        found = self._holds.get(key)
        if found is None:
            agents = {NAMES[place]: self._agent(world, place) for place in AGENTS}
            promised = dict.fromkeys(world.promised, NAMES[AGENTS[0]])
            found = self._holds[key] = next(broken_between(agents, self._cloud(world), promised), "")
        if found:
            raise FoundError(found, self._trace(world))

    def _follow(self, world: World) -> None:
        """Law 7: from here, without faults, everything ends."""
        way: list[World] = []
        steps: list[Choice] = []
        last = world.waits + FAIR_ROUNDS
        now = world
        while now not in self._well:
            way.append(now)
            choice = next(self._events(now), None)
            if choice is None and self._is_over(now):
                break
            choice = choice or Choice(CLOUD, ("wait",))
            if now.waits >= last:
                raise FoundError(
                    f"law 7: nothing ends within {FAIR_ROUNDS} waits: {self._left(now)}",
                    (*self._trace(world), *(self._words(step) for step in steps[:40]), "…"),
                )
            steps.append(choice)
            now = self._fair_step(world, now, choice, steps)
        self._well.update(way)

    def _fair_step(self, world: World, now: World, choice: Choice, steps: list[Choice]) -> World:
        try:
            after = self._step(now, choice)
        except FoundError as found:
            raise FoundError(found.words, (*self._trace(world), *map(self._words, steps))) from None
        self._from.setdefault(after, (now, choice))
        self._look_at(after)
        return after

    def _is_over(self, world: World) -> bool:
        return not self._left(world)

    def _left(self, world: World) -> str:
        home, other, cloud = self._agent(world, 0), self._agent(world, 1), self._cloud(world)
        for task_id in world.promised:
            if not home.has_ended(task_id):
                return f"task {task_id[-1]} is {home.tasks.get(task_id)} at a"
        for name, facts in (("a", home), ("b", other)):
            if any(facts.waiting.values()):
                return f"the outbox of {name} holds {sum(facts.waiting.values())} rows"
        return f"{cloud.commands} commands are not applied" if cloud.commands else ""

    def _agent(self, world: World, place: int) -> AgentFacts:
        facts = self._parts.facts[world.parts[place]]
        assert isinstance(facts, AgentFacts)
        return facts

    def _cloud(self, world: World) -> CloudFacts:
        facts = self._parts.facts[world.parts[CLOUD]]
        assert isinstance(facts, CloudFacts)
        return facts

    # --- the story

    def _trace(self, world: World, last: Choice | None = None) -> tuple[str, ...]:
        steps = [last] if last is not None else []
        at = self._from[world]
        while at is not None:
            steps.append(at[1])
            at = self._from[at[0]]
        return tuple(self._words(step) for step in reversed(steps))

    def _words(self, choice: Choice) -> str:
        return words_of(choice, NAMES[choice.place], self._parts.messages)


def _with(values: tuple[_T, ...], place: int, value: _T) -> tuple[_T, ...]:
    return (*values[:place], value, *values[place + 1 :])
