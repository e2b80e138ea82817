"""The testing kit that ships: a clock that moves only when told, and builders of kernel values."""

from __future__ import annotations

from typing import Any

from skerry.clock import WALL_FLOOR_S, Instant
from skerry.task import CommandSpec, TaskSpec


class ManualClock:
    """A clock for tests: boot time and wall time move apart at will."""

    def __init__(
        self, *, boot_id: str = "boot-1", uptime_s: float = 100.0, wall_s: float = WALL_FLOOR_S + 1e7
    ) -> None:
        """Start at the given readings."""
        self.boot_id = boot_id
        self.uptime_s = uptime_s
        self._wall_s = wall_s

    def now(self) -> Instant:
        """Return the present reading."""
        return Instant(self.boot_id, self.uptime_s)

    def wall_s(self) -> float:
        """Return the present wall reading."""
        return self._wall_s

    def advance(self, seconds: float) -> Instant:
        """Move both clocks forward and return the new reading."""
        self.uptime_s += seconds
        self._wall_s += seconds
        return self.now()

    def step_wall(self, seconds: float) -> None:
        """Step the wall clock alone, as a time server does."""
        self._wall_s += seconds

    def reboot(self, boot_id: str, *, off_s: float = 0.0, uptime_s: float = 1.0) -> Instant:
        """Begin another boot after off_s seconds without power."""
        self._wall_s += off_s
        self.boot_id = boot_id
        self.uptime_s = uptime_s
        return self.now()


def a_task(argv: tuple[str, ...] = ("true",), **fields: Any) -> TaskSpec:
    """Return a small command task; fields override TaskSpec's."""
    return TaskSpec(**{"spec": CommandSpec(argv=argv), **fields})
