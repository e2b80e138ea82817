"""The virtual world: one clock, a network, and processes that are turned in the order of their moments.

Owns time and order, nothing else: equal moments go by the network first, then by the order in which processes
were added. Every draw comes from the seed.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from math import inf
from random import Random
from typing import Any

from skerry.transport.memory import MemoryBroker
from twin.faithful.loop import VirtualLoop
from twin.faithful.machine import Machine


class WorldBroken(RuntimeError):
    """A process broke in a way that no process may."""


class Process:
    """A slot for one process on a machine: what runs there now, if anything does."""

    def __init__(self, machine: Machine, order: int) -> None:
        """machine: whose clocks it reads.  order: among equals of one moment."""
        self.machine = machine
        self.order = order
        self.loop: VirtualLoop | None = None

    def next_at(self) -> float | None:
        """Return when it wants a turn, in the world's seconds."""
        if self.loop is None or self.machine.asleep_since is not None:
            return None
        loop_s = self.loop.next_at()
        return None if loop_s is None else self.machine.world_at(loop_s)


class World:
    """Everything that happens, in order."""

    def __init__(self, seed: int) -> None:
        """seed: decides every draw of the world and of what lives in it."""
        self.seed = seed
        self.network = MemoryBroker(seed=seed)
        self.processes: list[Process] = []
        self._wanted: list[tuple[float, int]] = []  # (moment, process): may be out of date, never missing …
        self._earliest: dict[int, float] = {}  # … and this says which one of a process counts
        self.broken: list[str] = []
        #: Moments that `at` was asked for, in their order, when someone wants to know them.
        self.timeline: list[float] | None = None

    def rng(self, name: str) -> Random:
        """Return a stream of draws of its own for a name."""
        return Random(f"{self.seed}:{name}")

    def now_s(self) -> float:
        """Return the world's seconds since it began."""
        return self.network.now_s

    def at(self, when_s: float, action: Callable[[], None]) -> None:
        """Do something at a moment; equal moments keep their order."""
        if self.timeline is not None:
            heapq.heappush(self.timeline, when_s)
        self.network.at(when_s, action)

    def process(self, machine: Machine) -> Process:
        """Return a new slot for a process."""
        process = Process(machine, len(self.processes))
        self.processes.append(process)
        return process

    def begin(self, process: Process) -> VirtualLoop:
        """Give a process its event loop: it runs from now on."""
        machine = process.machine
        loop = VirtualLoop(machine.loop_s, lambda at: self._want(machine.world_at(at), process))  # type: ignore[abstract] # asyncio's other half is sockets and children
        process.loop = loop
        return loop

    def end(self, process: Process) -> None:
        """End a process without a word."""
        if process.loop is not None:
            loop, process.loop = process.loop, None
            loop.close()

    def awake(self, process: Process) -> None:
        """Have a process looked at again: its machine has woken."""
        at = process.next_at()
        if at is not None:
            self._want(at, process)

    def next_s(self) -> float:
        """Return when the next thing happens, infinity when nothing will by itself."""
        turn_at, wire_at = self._next_turn(), self.network.next_due_s()
        return min(inf if turn_at is None else turn_at, inf if wire_at is None else wire_at)

    def run(self, until_s: float) -> None:
        """Let everything happen up to a moment.  Raises WorldBroken when a process broke."""
        while True:
            turn_at = self._next_turn()
            wire_at = self.network.next_due_s()
            if wire_at is not None and wire_at <= until_s and (turn_at is None or wire_at <= turn_at):
                self.network.pump_one()
            elif turn_at is not None and turn_at <= until_s:
                self._turn(turn_at, until_s)
            else:
                break
        self.network.pump(until_s)

    def _want(self, at: float, process: Process) -> None:
        at = max(at, self.now_s())
        if at < self._earliest.get(process.order, inf):
            self._earliest[process.order] = at
            heapq.heappush(self._wanted, (at, process.order))

    def _next_turn(self) -> float | None:
        """Return the moment of the next turn; what is out of date on the agenda is put right on the way."""
        while self._wanted:
            at, order = self._wanted[0]
            if self._earliest.get(order) == at:
                real = self.processes[order].next_at()
                if real is not None and real <= at:
                    return at
                del self._earliest[order]
                if real is not None:
                    self._want(real, self.processes[order])
            else:
                heapq.heappop(self._wanted)
        return None

    def _turn(self, at: float, until_s: float) -> None:
        """Turn the process that is next, and again for as long as nothing else comes before it."""
        _, order = heapq.heappop(self._wanted)
        del self._earliest[order]
        process, network = self.processes[order], self.network
        loop = process.loop
        assert loop is not None  # _next_turn has looked
        following: float | None = at
        while following is not None:
            if following > network.now_s:
                network.now_s = following
            loop.turn()
            if loop.broken:
                raise WorldBroken(f"{process.machine.name}: {_why(loop.broken)}")
            following = process.next_at()
            if following is not None and following >= self._next_other(until_s):
                self._want(following, process)
                return

    def _next_other(self, until_s: float) -> float:
        """Return when something else than the process being turned may happen."""
        if self._wanted and self._wanted[0][0] < until_s:
            until_s = self._wanted[0][0]
        wire_at = self.network.next_due_s()
        return until_s if wire_at is None or wire_at > until_s else wire_at


def _why(broken: list[dict[str, Any]]) -> str:
    first = broken[0]
    return f"{first.get('message', '')} {first.get('exception', '')!r}".strip()
