"""Time as the cores see it. Owns `Instant` and the clocks; knows nothing of leases or tasks.

Leases, time-outs, expiry and back-off use the boot-time clock (it counts suspend) plus the boot id. Wall time
is for people and for X.509 only.
"""

from __future__ import annotations

import time
from functools import cache
from pathlib import Path
from typing import Protocol

import msgspec

#: Built well after 1970 and before any real use: a wall clock below this was never set.
WALL_FLOOR_S = 1_767_225_600.0  # 2026-01-01T00:00:00Z


class Instant(msgspec.Struct, frozen=True, order=False):
    """A moment on one machine: only moments of one boot can be subtracted."""

    boot_id: str
    uptime_s: float

    def plus(self, seconds: float) -> Instant:
        """Return the moment `seconds` later in the same boot."""
        return Instant(self.boot_id, self.uptime_s + seconds)

    def since(self, earlier: Instant) -> float:
        """Return the seconds from `earlier` to here; 0.0 when `earlier` is of another boot."""
        return self.uptime_s - earlier.uptime_s if self.boot_id == earlier.boot_id else 0.0


class Clock(Protocol):
    """Where a shell reads time; cores are given the readings."""

    def now(self) -> Instant:
        """Return the boot-time clock's reading."""
        ...

    def wall_s(self) -> float:
        """Return seconds since 1970 as the wall clock says; for display, ids and X.509 only."""
        ...


@cache
def read_boot_id(path: Path = Path("/proc/sys/kernel/random/boot_id")) -> str:
    """Return the kernel's id of this boot."""
    return path.read_text(encoding="ascii").strip()


class SystemClock:
    """The machine's own clocks."""

    def now(self) -> Instant:
        """Return CLOCK_BOOTTIME with the kernel's boot id."""
        return Instant(read_boot_id(), time.clock_gettime(time.CLOCK_BOOTTIME))

    def wall_s(self) -> float:
        """Return the wall clock's seconds since 1970."""
        return time.time()


def is_wall_trusted(wall_s: float) -> bool:
    """Decide whether a wall clock reading can be true at all (it was set since this code was written)."""
    return wall_s >= WALL_FLOOR_S
