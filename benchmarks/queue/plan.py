"""Which sessions a run consists of: sizes, systems, disks, how often, and what slow systems are spared.

Owns the plan and gathers its samples; knows nothing of goals.
"""

from __future__ import annotations

import os
import shutil
from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import msgspec

from benchmarks.harness import BenchmarkError, Run
from benchmarks.queue import agent_path
from benchmarks.queue.backlog import copied, size_bytes
from benchmarks.queue.port import SYSTEMS
from benchmarks.queue.preload import Disk
from benchmarks.queue.runs import Runs
from benchmarks.queue.session import LIFE_BATCHES, Lap, Session, Spec

SIZES = (1_000, 100_000, 2_600_000)
QUICK_SIZES = (1_000, 10_000)
WAITERS = (1, 64, 256)
#: Producers of batches that wait at the same time, and the peer that they are held against.
BATCHERS, BATCHING_PEER = 64, "localqueue"
WORK = ("put", "put_batch", "cycle", "cycle_batch", "mixed")
#: What is measured of a system that takes long for each claim: more of it would only take longer.
SLOW_WORK = ("put", "put_batch", "cycle")
SLOW_CYCLE_S = 0.05
SLOW_OPEN_S = 1.0
#: NATS is a static program: no preloaded library reaches its syncs.
UNREACHED = frozenset({"nats"})


@dataclass
class Samples:
    """What was measured of one system at one size on one disk: laps by their work."""

    laps: dict[str, list[Lap]] = field(default_factory=lambda: defaultdict(list))
    reopen_s: list[float] = field(default_factory=list)
    peak_bytes: list[int] = field(default_factory=list)
    file_bytes: int = 0

    def add(self, session: Session) -> None:
        """Take a session's figures."""
        for lap in session.laps:
            self.laps[lap.work].append(lap)
        if session.reopen_s:
            self.reopen_s.append(session.reopen_s)
        if session.peak_bytes:
            self.peak_bytes.append(session.peak_bytes)


Key = tuple[str, int, Disk]


@dataclass
class Measured:
    """Everything a run has measured. floors: rates of synced pages on each disk; ways: the asyncio paths."""

    of: dict[Key, Samples] = field(default_factory=lambda: defaultdict(Samples))
    producers: dict[tuple[str, Disk], Samples] = field(default_factory=lambda: defaultdict(Samples))
    ways: dict[tuple[str, Disk], Samples] = field(default_factory=lambda: defaultdict(Samples))
    floors: dict[Disk, list[float]] = field(default_factory=lambda: defaultdict(list))
    absent: dict[str, str] = field(default_factory=dict)  #: systems that could not be measured, and why


class Plan:
    """Performs a run's sessions, systems interleaved."""

    def __init__(self, run: Run, runs: Runs) -> None:
        """Sizes and repeats as the run asks."""
        self._run = run
        self._runs = runs
        self._rounds = run.size(5, 1)
        self._lap_s = run.duration_s(0.5, 0.1)
        self.sizes: Sequence[int] = QUICK_SIZES if run.quick else SIZES
        self.measured = Measured()

    def perform(self) -> Measured:
        """Measure everything.  A system that cannot be measured is named, and stops no other."""
        with ThreadPoolExecutor(max_workers=2) as two:  # nothing is measured meanwhile
            for size in self.sizes:
                list(two.map(partial(self._prepare, size), self._systems(size)))
        for number in range(self._rounds):
            self._run.say(f"round {number + 1} of {self._rounds}")
            for size in self.sizes:
                self._round(number, size)
            self._producers(number)
            self._ways(number)
        return self.measured

    def _systems(self, size: int) -> list[str]:
        """In --quick only our own queue is measured at more than the smallest size."""
        names = [name for name in SYSTEMS if name not in self.measured.absent]
        if self._run.quick and size != self.sizes[0]:
            return [name for name in names if name in ("skerry", "raw_sqlite")]
        return names

    def _attempt(self, system: str, work: object) -> None:
        try:
            assert callable(work)
            work()
        except BenchmarkError as error:
            self.measured.absent[system] = str(error)
            self._run.say(f"{system} cannot be measured: {error}")

    def _prepare(self, size: int, system: str) -> None:
        def work() -> None:
            self._run.say(f"{system}: {size:,} rows")
            place = copied(system, size, self._runs.cache)
            for disk in Disk:
                self.measured.of[system, size, disk].file_bytes = size_bytes(place)

        self._attempt(system, work)

    def _round(self, number: int, size: int) -> None:
        os.sync()  # what the copies left to be written would be written into the measurement
        for disk in self._disks():
            self._floor(disk, number, size)
            for system in self._systems(size):
                if disk is Disk.SLOW and system in UNREACHED:
                    continue
                self._attempt(
                    system,
                    lambda s=system, d=disk: self._one(s, size, d, number),
                )

    def _disks(self) -> tuple[Disk, ...]:
        return (Disk.NONE, Disk.SLOW) if self._run.quick else (Disk.NONE, Disk.SLOW, Disk.RAW)

    def _floor(self, disk: Disk, number: int, size: int) -> None:
        if disk is not Disk.NONE:
            label = (number, size)
            rate = self._runs.floor(self._runs.cache / "work", disk, self._lap_s, label=label)
            self.measured.floors[disk].append(rate)

    def _one(self, system: str, size: int, disk: Disk, number: int) -> None:
        samples = self.measured.of[system, size, disk]
        spec = self._spec(system, size, disk, number)
        if spec is None:
            return
        session = self._runs.session("session", spec, disk, system=system, label=(number,))
        samples.add(session)

    def _spec(self, system: str, size: int, disk: Disk, number: int) -> Spec | None:
        """Return what to measure; None when a slow system has had enough."""
        spec = Spec(
            system=system,
            directory=str(self._runs.cache / "work" / f"{system}-{size}"),
            work=(*WORK, *LIFE_BATCHES) if self._lives(system, disk) else WORK,
            durable=disk is not Disk.NONE or system not in UNREACHED,
            lap_s=self._lap_s,
            limit=min(3000, size // 2),
            laps=self._run.size(1, 2),
        )
        opens_slowly, claims_slowly = self._slowness(system, size)
        if claims_slowly:
            spec = msgspec.structs.replace(spec, work=SLOW_WORK, least=1)
        if disk is not Disk.NONE and (opens_slowly or claims_slowly):
            return None if number else msgspec.structs.replace(spec, laps=5)
        return spec

    def _lives(self, system: str, disk: Disk) -> bool:
        """The log is counted where syncs cost nothing extra: the raw disk, or the slow one with --quick."""
        return system in ("skerry", "raw_sqlite") and disk is (Disk.SLOW if self._run.quick else Disk.RAW)

    def _slowness(self, system: str, size: int) -> tuple[bool, bool]:
        """Whether opening and whether claiming takes long, by what the first round has shown."""
        known = self.measured.of[system, size, Disk.NONE]
        cycles = known.laps.get("cycle", [])
        opens = bool(known.reopen_s) and min(known.reopen_s) > SLOW_OPEN_S
        return opens, any(lap.wall_s / lap.units > SLOW_CYCLE_S for lap in cycles)

    def _producers(self, number: int) -> None:
        """Waiting producers of each peer, at the smallest size."""
        size = self.sizes[0]
        for disk in self._disks()[1:]:
            for system in self._systems(size):
                if system in ("skerry", "raw_sqlite") or (disk is Disk.SLOW and system in UNREACHED):
                    continue
                spec = Spec(
                    system=system,
                    directory=str(self._runs.cache / "work" / f"{system}-{size}"),
                    work=(),
                    lap_s=self._lap_s,
                    producers=WAITERS,
                    batchers=(BATCHERS,) if system == BATCHING_PEER else (),
                )
                self._attempt(
                    system,
                    lambda sp=spec, s=system, d=disk: self.measured.producers[s, d].add(
                        self._runs.session("session", sp, d, system=s, label=("producers", number))
                    ),
                )

    def _ways(self, number: int) -> None:
        """The asyncio paths, each on a queue of its own that begins empty."""
        for disk in (Disk.SLOW, Disk.RAW):
            self._floor(disk, number, 0)
            for way in ("writer", "agent") if self._run.quick else ("writer", "agent", "door"):
                place = self._runs.cache / "work" / f"way-{way}"
                shutil.rmtree(place, ignore_errors=True)
                place.mkdir(parents=True)
                spec = agent_path.Spec(
                    way=way,
                    directory=str(place),
                    waiters=WAITERS,
                    lap_s=self._run.duration_s(1.5, 0.4),
                    batchers=(BATCHERS,) if way != "door" else (),
                )
                session = self._runs.session(
                    "agent_path", spec, disk, system="skerry", label=("ways", number)
                )
                self.measured.ways[way, disk].add(session)
            self._floor(disk, number, 1)


def cache_directory() -> Path:
    """Return where backlogs and partial results lie: SKERRY_BENCH_CACHE, else build/bench-queue."""
    from benchmarks.queue.backlog import ROOT

    return Path(os.environ.get("SKERRY_BENCH_CACHE", ROOT / "build" / "bench-queue"))
