"""From samples to results: medians, ratios, and the goals that Skerry's figures are held against.

Owns every goal of this benchmark; a goal that is missed is said to be missed.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from itertools import product

from benchmarks.harness import Baseline, Goal, Result, result
from benchmarks.queue.agent_path import BATCH
from benchmarks.queue.plan import BATCHERS, BATCHING_PEER, WAITERS, WORK, Measured, Samples
from benchmarks.queue.port import SYSTEMS
from benchmarks.queue.preload import PAD_US, Disk
from benchmarks.queue.session import LIFE_BATCHES, Lap, producers_named

Figure = Callable[[Lap], float]
_KIB = 1024
_MB = 1e6
_WORDS = {
    "put": "put, one by one",
    "put_batch": "put, in batches of 100 where it can",
    "cycle": "claim and acknowledge, one by one",
    "cycle_batch": "claim and acknowledge, in batches of 50 where it can",
    "mixed": "put, claim and acknowledge in turn",
}
_WAYS = {
    "agent": "agent's submit, node with a coordinator",
    "writer": "StoreWriter.commit alone",
    "door": "agent's submit, node without a coordinator",
}
#: waiters → the goal over the disk's own rate, through the whole agent's submit
_WAITER_GOALS = {1: 0.9, 64: 35.0, 256: 80.0}
_SLOW = f"each sync at least {PAD_US / 1000:g} ms"


def rate(lap: Lap) -> float:
    """Units per second."""
    return lap.units / lap.wall_s


def cpu_us(lap: Lap) -> float:
    """Processor time per unit, microseconds."""
    return 1e6 * lap.cpu_s / lap.units


def log_kib(lap: Lap) -> float:
    """Log written per unit, KiB."""
    return lap.log_bytes / lap.units / _KIB


def middle(samples: Samples, work: str, figure: Figure) -> float | None:
    """Return the median of a figure over the laps, None when that work was not measured."""
    laps = samples.laps.get(work)
    return statistics.median(figure(lap) for lap in laps) if laps else None


def results(measured: Measured, sizes: Sequence[int]) -> Iterator[Result]:
    """Yield every result: what is judged first, then each system's figures."""
    yield from _floors(measured)
    yield from _ways(measured)
    yield from _goals(measured, sizes)
    for size in sizes:
        for system in SYSTEMS:
            yield from _system(measured, system, size)
    for system in SYSTEMS:
        yield from _producers(measured, system)


def _floors(measured: Measured) -> Iterator[Result]:
    for disk, rates in sorted(measured.floors.items()):
        words = _SLOW if disk is Disk.SLOW else "the disk as it is"
        yield result(
            f"queue.fd.{disk}_per_s",
            f"fd: synced writes of one 4 KiB page, {words}",
            statistics.median(rates),
            "/s",
        )


def _fd(measured: Measured, disk: Disk) -> float:
    return statistics.median(measured.floors[disk])


def _ways(measured: Measured) -> Iterator[Result]:
    for way, words in _WAYS.items():
        for waiters in WAITERS:
            for disk in (Disk.SLOW, Disk.RAW):
                samples, work = measured.ways[way, disk], f"producers_{waiters}"
                per_s = middle(samples, work, rate)
                cpu = middle(samples, work, cpu_us)
                if per_s is None or cpu is None:
                    continue
                is_judged = way == "agent" and disk is Disk.SLOW
                yield result(
                    f"queue.{way}.waiters_{waiters}.{disk}_per_s",
                    f"{words}: durable puts, {waiters} waiting ({_disk(disk)})",
                    per_s,
                    "/s",
                    goal=Goal(">=", _WAITER_GOALS[waiters], of_baseline=True) if is_judged else None,
                    baseline=Baseline(what="fd", value=_fd(measured, disk)),
                )
                is_cpu_judged = way == "agent" and disk is Disk.RAW and waiters == 64
                yield result(
                    f"queue.{way}.waiters_{waiters}.{disk}_cpu_us",
                    f"{words}: processor time per put, {waiters} waiting ({_disk(disk)})",
                    cpu,
                    "us",
                    goal=Goal("<=", 60.0) if is_cpu_judged else None,
                )


def _disk(disk: Disk) -> str:
    return {Disk.SLOW: _SLOW, Disk.RAW: "raw disk", Disk.NONE: "no syncs"}[disk]


def _goals(measured: Measured, sizes: Sequence[int]) -> Iterator[Result]:
    yield from _shared_batches(measured, sizes[0])
    for size in sizes:
        yield from _put_batches(measured, size)
    yield from _flatness(measured, sizes)
    largest = sizes[-1]
    yield from _batched(measured, largest)
    if 100_000 in sizes:
        yield from _against(measured, 100_000)
    yield from _life(measured, sizes)
    reopen = measured.of["skerry", largest, Disk.NONE].reopen_s
    if reopen:
        yield result(
            "queue.reopen_s",
            f"reopen and first claim at {largest:,} rows",
            statistics.median(reopen),
            "s",
            goal=Goal("<=", 0.2),
        )


def _shared_batches(measured: Measured, size: int) -> Iterator[Result]:
    """Producers of batches that wait together share a commit here; the peer is taken at its better way."""
    work = producers_named(BATCHERS, BATCH)
    for disk in (Disk.SLOW, Disk.RAW):
        together = middle(measured.producers[BATCHING_PEER, disk], work, rate)
        in_turn = middle(measured.of[BATCHING_PEER, size, disk], "put_batch", rate)
        ways = [(together, f"{BATCHERS} threads"), (in_turn, "one producer at a time")]
        known = [(value, words) for value, words in ways if value is not None]
        ours = {way: middle(measured.ways[way, disk], work, rate) for way in ("agent", "writer")}
        for way, value in ours.items():
            if value is None or not known:
                continue
            best, words = max(known)
            yield result(
                f"queue.{way}.batches_{BATCHERS}.{disk}_per_s",
                f"{_WAYS[way]}: put in batches of {BATCH}, {BATCHERS} waiting ({_disk(disk)})",
                value,
                "/s",
                goal=Goal(">=", 1.0, of_baseline=True) if way == "agent" else None,
                baseline=Baseline(what=f"{BATCHING_PEER}'s put_many, {words}, its better way", value=best),
            )


def _put_batches(measured: Measured, size: int) -> Iterator[Result]:
    for disk in (Disk.SLOW, Disk.RAW):
        ours = middle(measured.of["skerry", size, disk], "put_batch", rate)
        theirs = middle(measured.of["localqueue", size, disk], "put_batch", rate)
        if ours is not None and theirs is not None:
            yield result(
                f"queue.{size}.put_batch.{disk}_per_s",
                f"put in batches of 100 by one producer that waits, at {size:,} rows ({_disk(disk)})",
                ours,
                "/s",
                goal=Goal(">=", 1.0, of_baseline=True),
                baseline=Baseline(what="localqueue's put_many", value=theirs),
            )


def _flatness(measured: Measured, sizes: Sequence[int]) -> Iterator[Result]:
    small = middle(measured.of["skerry", sizes[0], Disk.NONE], "cycle", cpu_us)
    large = middle(measured.of["skerry", sizes[-1], Disk.NONE], "cycle", cpu_us)
    batched = middle(measured.of["skerry", sizes[-1], Disk.NONE], "cycle_batch", cpu_us)
    if small is not None and large is not None:
        yield result(
            "queue.cycle.cpu_us",
            f"processor time of claim and acknowledge at {sizes[-1]:,} rows, one by one",
            large,
            "us",
            goal=Goal("<=", 1.6, of_baseline=True),
            baseline=Baseline(what=f"the same at {sizes[0]:,} rows", value=small),
        )
    if batched is not None:
        yield result(
            "queue.cycle_batch.cpu_us",
            f"processor time of claim and acknowledge at {sizes[-1]:,} rows, in batches of 50",
            batched,
            "us",
            goal=Goal("<=", 60.0),
        )


def _batched(measured: Measured, size: int) -> Iterator[Result]:
    ours = middle(measured.of["skerry", size, Disk.SLOW], "cycle_batch", rate)
    if ours is None:
        return
    for name, work, limit in (("alone", "cycle", 20.0), ("best_batch", "cycle_batch", 1.5)):
        best = _best_full_peer(measured, size, work)
        if best is not None:
            yield result(
                f"queue.cycle_batch.{name}_per_s",
                f"claim and acknowledge in batches of 50 at {size:,} rows ({_SLOW})",
                ours,
                "/s",
                goal=Goal(">=", limit, of_baseline=True),
                baseline=best,
            )


def _best_full_peer(measured: Measured, size: int, work: str) -> Baseline | None:
    """The fastest peer that syncs what it acknowledges; where it has no batch, its single calls count."""
    found = []
    for name, system in SYSTEMS.items():
        if name in ("skerry", "raw_sqlite") or not system.is_full:
            continue
        samples = measured.of[name, size, Disk.SLOW]
        value = middle(samples, work, rate) or middle(samples, "cycle", rate)
        if value is not None:
            found.append((value, name))
    if not found:
        return None
    value, name = max(found)
    return Baseline(what=f"the best peer at FULL: {name}", value=value)


def _against(measured: Measured, size: int) -> Iterator[Result]:
    """One by one on both sides, then each at its own best batch; the peers have none for claims."""
    for peer, times in (("litequeue", 200), ("localqueue", 100)):
        theirs = middle(measured.of[peer, size, Disk.NONE], "cycle", cpu_us)
        for work, words in (("cycle", "one by one"), ("cycle_batch", "in batches of 50")):
            ours = middle(measured.of["skerry", size, Disk.NONE], work, cpu_us)
            if ours is not None and theirs is not None:
                yield result(
                    f"queue.{size}.{work}.against_{peer}_us",
                    f"processor time of claim and acknowledge at {size:,} rows, {words}",
                    ours,
                    "us",
                    goal=Goal("<=", 1 / times, of_baseline=True),
                    baseline=Baseline(what=f"{peer}, at its best", value=theirs),
                )


def _life(measured: Measured, sizes: Sequence[int]) -> Iterator[Result]:
    for size, system, (work, batch) in product(sizes, ("skerry", "raw_sqlite"), LIFE_BATCHES.items()):
        for disk in (Disk.RAW, Disk.SLOW):
            value = middle(measured.of[system, size, disk], work, log_kib)
            if value is not None:
                yield result(
                    f"queue.{size}.{system}.{work}.log_kib",
                    f"{system}: log per task over its life at {size:,} rows, in batches of {batch}, "
                    "report and story included, until it is forgotten",
                    value,
                    "KiB",
                    goal=Goal("<=", 2.5) if system == "skerry" else None,
                )


def _system(measured: Measured, system: str, size: int) -> Iterator[Result]:
    head = f"queue.{size}.{system}"
    for disk in (Disk.NONE, Disk.SLOW, Disk.RAW):
        samples = measured.of[system, size, disk]
        for work in WORK:
            figure, unit = (cpu_us, "us") if disk is Disk.NONE else (rate, "/s")
            value = middle(samples, work, figure)
            if value is None:
                continue
            what = "processor time" if disk is Disk.NONE else f"rate ({_disk(disk)})"
            fd = None if disk is Disk.NONE else Baseline(what="fd", value=_fd(measured, disk))
            yield result(
                f"{head}.{work}.{'cpu_us' if disk is Disk.NONE else f'{disk}_per_s'}",
                f"{system} at {size:,} rows: {_WORDS[work]}, {what}",
                value,
                unit,
                baseline=fd,
            )
    yield from _weights(measured, system, size, head)


def _weights(measured: Measured, system: str, size: int, head: str) -> Iterator[Result]:
    slow, none = measured.of[system, size, Disk.SLOW], measured.of[system, size, Disk.NONE]
    for work in ("put", "put_batch", "cycle", "cycle_batch"):
        value = middle(slow, work, log_kib)
        if value is not None:
            yield result(
                f"{head}.{work}.log_kib", f"{system} at {size:,} rows: {_WORDS[work]}, log", value, "KiB"
            )
    if none.reopen_s:
        yield result(
            f"{head}.reopen_s",
            f"{system} at {size:,} rows: open and first claim",
            statistics.median(none.reopen_s),
            "s",
        )
        yield result(f"{head}.file_mb", f"{system} at {size:,} rows: files", none.file_bytes / _MB, "MB")
        peak = statistics.median(none.peak_bytes) / _MB
        yield result(f"{head}.peak_mb", f"{system} at {size:,} rows: memory at most", peak, "MB")


def _producers(measured: Measured, system: str) -> Iterator[Result]:
    works = [(producers_named(waiters), f"waiters_{waiters}", f"puts, {waiters}") for waiters in WAITERS]
    batches = f"puts in batches of {BATCH}, {BATCHERS}"
    works.append((producers_named(BATCHERS, BATCH), f"batches_{BATCHERS}", batches))
    for disk in (Disk.SLOW, Disk.RAW):
        samples = measured.producers[system, disk]
        for work, name, words in works:
            value = middle(samples, work, rate)
            if value is not None:
                yield result(
                    f"queue.{system}.{name}.{disk}_per_s",
                    f"{system}: {words} waiting ({_disk(disk)})",
                    value,
                    "/s",
                    baseline=Baseline(what="fd", value=_fd(measured, disk)),
                )
