"""The plain values of the exhaustive check: its bounds, states and choices, and what came of it."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from skerry.ids import TaskId

#: What a part is told: a word, and what belongs to it.
Told = tuple[str, *tuple[Any, ...]]


class Bounds(msgspec.Struct, frozen=True, kw_only=True):
    """How far the check goes. depth: steps beyond a station.  faults: crashes and duplicates on one path.

    waits: how often time passes on one path.  followed: states of the last depth from which a run without
    faults must come to an end, at least so many where there are.

    seconds: of real time, after which it stops where it is.
    """

    depth: int = 4
    faults: int = 2
    waits: int = 1
    followed: int = 200
    seconds: float = 3600.0


class Checked(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a check. stations: of the undisturbed run.  depth: the last explored whole beyond them.

    states: different ones.  by_depth: of them, those first reached, or reached with fewer faults, there.
    steps_run: on the real cores.  fair: states from which a schedule without faults was followed to its end.
    trace: the shortest way to what is broken; empty when nothing is.
    """

    tasks: str
    bounds: Bounds
    stations: int
    depth: int
    states: int
    transitions: int
    part_states: int
    steps_run: int
    fair: int
    by_depth: tuple[int, ...]
    wall_s: float
    broken: str = ""
    trace: tuple[str, ...] = ()


class World(NamedTuple):
    """A global state. flight: numbers of messages, in order.  kept: retained presence of each agent."""

    parts: tuple[int, ...]
    flight: tuple[int, ...]
    kept: tuple[int, ...]
    promised: frozenset[TaskId]
    begun: tuple[int, ...]  #: attempts begun of each task that may begin once only
    submitted: int
    waits: int


class Choice(NamedTuple):
    """One step that is possible. place: of the part it happens to.  is_kept: the message comes again."""

    place: int
    told: Told
    cut_off_at: int = 0
    is_kept: bool = False

    @property
    def is_fault(self) -> bool:
        """Whether it counts against the bound."""
        return self.is_kept or self.cut_off_at > 0 or self.told[0] == "crash"


class Sent(NamedTuple):
    """A message in flight. to: the part that will hear it."""

    to: int
    topic: str
    payload: bytes
    is_retained: bool
