"""What a scenario's expectations are held against: how soon things went on after a fault, how often, who.

Owns the figures of a run. What was heard of the coordinator is the overseer's.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import inf

import msgspec

from skerry.errors import StoreDamaged
from skerry.messages import Lane
from twin.faithful.agent import Node
from twin.faithful.overseer import Overseer
from twin.faithful.world import World
from twin.scenario.expect import Expect

_AT_MOST = (
    "drain_begins_s",
    "drained_s",
    "live_s",
    "first_attempt_s",
    "attempts",
    "placements",
    "takeovers",
    "returns_per_s",
    "objects_grown",
    "gone",
)
#: Whose objects count as held: the product's, and what its event loops hold.
_OURS = frozenset(
    ("skerry", "edge_agent", "cloud_coordinator", "task_queue", "policy", "devices", "federation", "asyncio")
)
#: Between two looks whether an outbox is empty, seconds of the world.
LOOK_S = 0.25


class RolloutFigures(msgspec.Struct, frozen=True, kw_only=True):
    """What came of one rollout. lasted_s: until it was over, None while it is not.  path: its states."""

    version: str
    state: str
    reason: str
    lasted_s: float | None
    path: tuple[str, ...]


class Measures:
    """The figures of one run: the worst of each kind."""

    def __init__(self, world: World, overseer: Overseer) -> None:
        """overseer: hears of the coordinator."""
        self._world, self._overseer = world, overseer
        self._waits_since: dict[str, float] = {}  #: node → when its link came back, until its rows are taken
        self._drains_since: dict[str, float] = {}
        self._live_since: dict[str, tuple[float, int]] = {}  #: node → and the newest live row at that moment
        self._starts_since: dict[str, float] = {}
        self.worst: dict[str, float] = {}
        self.attempts = 0
        self._held: int | None = None
        overseer.marked = self._marked

    def disturbed(self, node: Node) -> None:
        """A fault hits the node: what was measured until now says nothing any more."""
        for since in (self._waits_since, self._drains_since, self._live_since):
            since.pop(node.name, None)

    def restored(self, node: Node) -> None:
        """The faults of the node are over: from now on its rows must flow."""
        now_s = self._world.now_s()
        if node.agent is None or not _outbox(node):
            return
        self._waits_since.setdefault(node.name, now_s)
        live = node.agent.parts.store.depth().written.get(Lane.LIVE, 0)
        self._live_since.setdefault(node.name, (now_s, live))
        self._drains_since[node.name] = now_s
        self._look_again(node, now_s)

    def started(self, node: Node) -> None:
        """An agent was started again."""
        if node.starts > 1:
            self._starts_since[node.name] = self._world.now_s()

    def attempted(self, node: Node, attempt: int) -> None:
        """An attempt begins at a node."""
        self.attempts = max(self.attempts, attempt)
        since_s = self._starts_since.pop(node.name, None)
        if since_s is not None:
            self._note("first_attempt_s", self._world.now_s() - since_s)

    def weigh(self) -> None:
        """Take note of how much the processes hold now: `objects_grown` counts from here."""
        self._held = _held()

    def figures(self) -> dict[str, float]:
        """Return what was measured; what has not come to its end yet counts as never."""
        grown = {} if self._held is None else {"objects_grown": max(0, _held() - self._held)}
        pending = (("drain_begins_s", self._waits_since), ("drained_s", self._drains_since))
        return {
            **self.worst,
            **grown,
            **{name: inf for name, since in pending if since},
            "attempts": self.attempts,
            "placements": self._overseer.most_placements,
            "takeovers": max(self._world.network.takeovers.values(), default=0),
            "returns_per_s": self._overseer.most_births,
            "sheddings": self._overseer.sheddings,
            "salvages": self._overseer.salvages,
        }

    def _note(self, name: str, value: float) -> None:
        self.worst[name] = round(max(value, self.worst.get(name, 0.0)), 3)

    def _marked(self, node: str, lane: Lane, upto: int) -> None:
        live_since = self._live_since.get(node)
        if live_since is not None and lane is Lane.LIVE and upto > live_since[1]:
            del self._live_since[node]
            self._note("live_s", self._world.now_s() - live_since[0])
        since_s = self._waits_since.pop(node, None)
        if since_s is not None:
            self._note("drain_begins_s", self._world.now_s() - since_s)

    def _look_again(self, node: Node, since_s: float) -> None:
        self._world.at(self._world.now_s() + LOOK_S, lambda: self._look(node, since_s))

    def _look(self, node: Node, since_s: float) -> None:
        if self._drains_since.get(node.name) != since_s:
            return  # it was hit again
        if node.agent is None:
            self.disturbed(node)
        elif _outbox(node):
            self._look_again(node, since_s)
        else:
            del self._drains_since[node.name]
            self._note("drained_s", self._world.now_s() - since_s)


def missed(
    expect: Expect,
    figures: Mapping[str, float],
    *,
    ended: Mapping[str, int],
    refusals: int,
    statuses: Mapping[str, set[str]],
    named: Callable[[str], tuple[str, ...]],
) -> Iterator[tuple[str, str]]:
    """Yield what was expected and did not come true: (node or nothing, what).  named: who a word names."""
    for name in _AT_MOST:
        most, found = getattr(expect, name), figures.get(name, 0.0)
        if most is not None and found > most:
            yield "", f"{name} is {found:g}, at most {most:g} is expected"
    if expect.refusals is not None and refusals > expect.refusals:
        yield "", f"{refusals} submissions were refused, at most {expect.refusals} are expected"
    if expect.sheddings is not None and figures["sheddings"] < expect.sheddings:
        yield "", f"nodes were held back {figures['sheddings']:g} times, {expect.sheddings} are expected"
    if expect.salvages is not None and figures["salvages"] != expect.salvages:
        yield (
            "",
            f"{figures['salvages']:g} damaged queues were told of, {expect.salvages} are expected",
        )
    for state, least in expect.ended.items():
        if ended.get(state, 0) < least:
            yield "", f"{ended.get(state, 0)} tasks ended as {state}, {least} are expected"
    for node in named(expect.online) if expect.online else ():
        if bad := statuses.get(node, set()) & {"stale", "lost"}:
            yield node, f"it was called {', '.join(sorted(bad))}"
    if expect.quarantined:
        yield from _quarantines(named(expect.quarantined), statuses)


def missed_rollouts(expect: Expect, rollouts: Sequence[RolloutFigures]) -> Iterator[tuple[str, str]]:
    """Yield what was expected of rollouts and did not come true."""
    paths = {one.version: ", ".join(one.path) for one in rollouts}
    for version, path in expect.rollouts.items():
        if paths.get(version) != path:
            yield "", f"the rollout of {version} went through {paths.get(version)}, {path} is expected"
    for one in rollouts:
        if expect.rollout_s is not None and (one.lasted_s is None or one.lasted_s > expect.rollout_s):
            yield (
                "",
                f"the rollout of {one.version} took {one.lasted_s} s, {expect.rollout_s:g} s is expected",
            )


def _quarantines(wanted: tuple[str, ...], statuses: Mapping[str, set[str]]) -> Iterator[tuple[str, str]]:
    for node, called in statuses.items():
        if ("quarantined" in called) != (node in wanted):
            yield node, f"it was {'' if 'quarantined' in called else 'not '}put into quarantine"


def _held() -> int:
    gc.collect()
    return sum(str(type(one).__module__).partition(".")[0] in _OURS for one in gc.get_objects())


def _outbox(node: Node) -> int:
    assert node.agent is not None
    try:
        rows: Mapping[Lane, int] = node.agent.parts.store.depth().outbox
    except StoreDamaged:
        return 1  # not known to be empty
    return sum(rows.values())
