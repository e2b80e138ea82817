"""A machine's clocks in a virtual world: boot time, wall time that can be wrong, sleep. Knows no process."""

from __future__ import annotations

from math import inf, nextafter
from typing import Protocol

from skerry.clock import WALL_FLOOR_S, Instant

#: What every right clock shows when a world begins, seconds since 1970.
WORLD_BEGAN_WALL_S = WALL_FLOOR_S + 1e7
#: What a boot has behind it when its first process starts, seconds.
BOOT_S = 5.0


class TrueTime(Protocol):
    """Whoever knows the world's own seconds."""

    now_s: float


class Machine:
    """The clock of one machine. `now`, `wall_s`: skerry's Clock port; `loop_s` stands still in sleep."""

    def __init__(self, name: str, world: TrueTime) -> None:
        """Switch the machine on now."""
        self.name = name
        self._world = world
        self._boots = 0
        self._wall_error_s = 0.0
        self._slept_s = 0.0
        self.asleep_since: float | None = None
        self._began_s = 0.0
        self._read = Instant("", -1.0)  # what was read last, and when: much is asked in one moment
        self._read_s = -1.0
        self.boot()

    def boot(self, *, wall_at_boot_s: float | None = None) -> None:
        """Switch it on.  wall_at_boot_s: what its wall clock shows then; None: as right as it was."""
        self._boots += 1
        self._began_s = self._world.now_s - BOOT_S
        self._read_s = -1.0
        self.asleep_since = None
        if wall_at_boot_s is not None:
            self._wall_error_s = wall_at_boot_s - self._true_wall_s()

    def now(self) -> Instant:
        """Return the boot-time clock's reading; it counts sleep."""
        world_s = self._world.now_s
        if world_s != self._read_s:
            self._read_s = world_s
            self._read = Instant(f"{self.name}-boot-{self._boots}", world_s - self._began_s)
        return self._read

    def wall_s(self) -> float:
        """Return what its wall clock shows."""
        return WORLD_BEGAN_WALL_S + self._world.now_s + self._wall_error_s

    def loop_s(self) -> float:
        """Return seconds that its processes' timers count: none while it sleeps."""
        return (self._world.now_s if self.asleep_since is None else self.asleep_since) - self._slept_s

    def world_at(self, loop_s: float) -> float:
        """Return when its timers reach loop_s, in the world's seconds, unless it goes to sleep before."""
        if not self._slept_s:
            return loop_s
        at = loop_s + self._slept_s
        while at - self._slept_s < loop_s:  # rounding: a timer must be due when its moment has come
            at = nextafter(at, inf)
        return at

    def step_wall(self, seconds: float) -> None:
        """Step the wall clock, as a time server or an operator does."""
        self._wall_error_s += seconds

    def set_right(self) -> None:
        """Let the wall clock be right again."""
        self._wall_error_s = 0.0

    def sleep(self) -> None:
        """Suspend it."""
        if self.asleep_since is None:
            self.asleep_since = self._world.now_s

    def wake(self) -> None:
        """Resume it."""
        if self.asleep_since is not None:
            self._slept_s += self._world.now_s - self.asleep_since
            self.asleep_since = None

    def _true_wall_s(self) -> float:
        return WORLD_BEGAN_WALL_S + self._world.now_s
