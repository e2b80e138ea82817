"""One measuring process: opens one queue, does each kind of work for a while, and says what that took.

`python -m benchmarks.queue.session SPEC` (JSON) prints one document. Owns how an operation is timed; knows
nothing of goals. What is preloaded (slow syncs, none) was decided by who started it.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec
import psutil

from benchmarks.harness import BenchmarkError
from benchmarks.queue.port import SYSTEMS, Queue, bodies, opener
from benchmarks.queue.preload import counts

#: Tasks in one step of `life`, and how many of them are claimed, ended and forgotten together.
_LIFE = 2000
LIFE_BATCHES = {"life_50": 50, "life_200": 200}


class Spec(msgspec.Struct, frozen=True, kw_only=True):
    """What one process does. limit: units of each kind of work at most; lap_s: or for so long."""

    system: str
    directory: str
    work: tuple[str, ...]  #: keys of WORK
    durable: bool = True
    lap_s: float = 0.5
    limit: int = 3000
    least: int = 3  #: below it a figure would be an accident
    laps: int = 1
    producers: tuple[int, ...] = ()
    batchers: tuple[int, ...] = ()  #: producers that put a batch at a time


class Lap(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of work, once. units: tasks put, or claimed and acknowledged."""

    work: str
    units: int
    wall_s: float
    cpu_s: float
    syncs: int
    log_bytes: int
    other_bytes: int


class Session(msgspec.Struct, frozen=True, kw_only=True):
    """What one process measured. reopen_s: opening, and the first claim with its acknowledgement."""

    reopen_s: float
    peak_bytes: int
    laps: tuple[Lap, ...]
    refused: str = ""  #: why the system could not be measured


def run(spec: Spec) -> Session:
    """Do the work of a spec."""
    open_queue = opener(spec.system)  # imports are not part of what is measured
    began = time.perf_counter()
    queue = open_queue(Path(spec.directory), spec.durable)
    try:
        queue.cycle(1)
        reopen_s = time.perf_counter() - began
        laps = tuple(_laps(queue, spec))
        queue.forget()
        return Session(reopen_s=reopen_s, peak_bytes=_peak_bytes(queue), laps=laps)
    finally:
        queue.close()


def _laps(queue: Queue, spec: Spec) -> Iterator[Lap]:
    for _ in range(spec.laps):
        for name in spec.work:
            yield _lap(name, queue, spec, WORK[name](queue, spec))
        for count in spec.producers:
            yield produced(queue, count, spec.lap_s)
        for count in spec.batchers:
            yield produced(queue, count, spec.lap_s, SYSTEMS[spec.system].put_batch)


def _lap(name: str, queue: Queue, spec: Spec, step: Callable[[], int]) -> Lap:
    """Take steps until the time is over or the limit reached."""
    units = 0
    with _meter(queue) as read:
        until = time.perf_counter() + spec.lap_s
        while units < spec.limit and (time.perf_counter() < until or units < spec.least):
            done = step()
            if not done:
                break
            units += done
    if not units:
        raise BenchmarkError(f"{spec.system}: nothing was left to do for {name}")
    return read(name, units)


@contextmanager
def _meter(queue: Queue) -> Iterator[Callable[[str, int], Lap]]:
    """Measure the block; what it yields makes the lap of it."""
    pids = queue.pids()
    before, cpu, wall = counts(), _cpu_s(pids), time.perf_counter()
    taken: list[Lap] = []

    def read(name: str, units: int) -> Lap:
        return msgspec.structs.replace(taken[0], work=name, units=units)

    yield read
    wall_s, cpu_s, after = time.perf_counter() - wall, _cpu_s(pids) - cpu, counts()
    taken.append(
        Lap(
            work="",
            units=0,
            wall_s=wall_s,
            cpu_s=cpu_s,
            syncs=after.syncs - before.syncs,
            log_bytes=after.log_bytes - before.log_bytes,
            other_bytes=after.other_bytes - before.other_bytes,
        )
    )


def _cpu_s(pids: Sequence[int]) -> float:
    """Return the processor time of this process, all threads, and of the queue's others, s."""
    others = [psutil.Process(pid).cpu_times() for pid in pids]
    return time.process_time() + sum(one.user + one.system for one in others)


def _peak_bytes(queue: Queue) -> int:
    # Not ru_maxrss: that begins with what the parent had.
    status = Path("/proc/self/status").read_text()
    own = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM:"))
    return own * 1024 + sum(psutil.Process(pid).memory_info().rss for pid in queue.pids())


def _puts(batch: int) -> Callable[[Queue, Spec], Callable[[], int]]:
    def prepare(queue: Queue, spec: Spec) -> Callable[[], int]:
        size = min(batch, SYSTEMS[spec.system].put_batch) if batch > 1 else 1
        ready = bodies(size)

        def step() -> int:
            queue.put(ready)
            return size

        return step

    return prepare


def _cycles(batch: int) -> Callable[[Queue, Spec], Callable[[], int]]:
    def prepare(queue: Queue, spec: Spec) -> Callable[[], int]:
        size = min(batch, SYSTEMS[spec.system].cycle_batch) if batch > 1 else 1
        return lambda: queue.cycle(size)

    return prepare


def _mixed(queue: Queue, spec: Spec) -> Callable[[], int]:
    ready = bodies(1)

    def step() -> int:
        queue.put(ready)
        return queue.cycle(1)

    return step


def _life(batch: int) -> Callable[[Queue, Spec], Callable[[], int]]:
    """Everything that a task costs, in batches: put, claimed, acknowledged, forgotten.

    A queue with a method `live` does the last three in the commits that they share.
    """

    def prepare(queue: Queue, spec: Spec) -> Callable[[], int]:
        put = _puts(100)(queue, spec)
        cycle: Callable[[int], int] = getattr(queue, "live", queue.cycle)
        queue.forget()  # what other work left is not part of these tasks' lives

        def step() -> int:
            wanted = done = 0
            while wanted < _LIFE:
                wanted += put()
            while done < wanted:
                done += cycle(batch)
            queue.forget()
            return done

        return step

    return prepare


#: name → what prepares a step; a step returns how many units it did, 0 when nothing was left
WORK: dict[str, Callable[[Queue, Spec], Callable[[], int]]] = {
    "put": _puts(1),
    "put_batch": _puts(100),
    "cycle": _cycles(1),
    "cycle_batch": _cycles(50),
    "mixed": _mixed,
    **{name: _life(batch) for name, batch in LIFE_BATCHES.items()},
}


def produced(queue: Queue, count: int, duration_s: float, batch: int = 1) -> Lap:
    """Measure puts by so many waiting producers: coroutines where the system has them, else threads."""
    ready = bodies(batch)
    native = getattr(queue, "produce", None) if batch == 1 else None
    with _meter(queue) as read:
        until = time.perf_counter() + duration_s
        units = native(count, until, ready[0]) if native else _by_threads(queue, count, until, ready)
    return read(producers_named(count, batch), units)


def producers_named(count: int, batch: int = 1) -> str:
    """Return the name of the work of so many waiting producers."""
    return f"producers_{count}" if batch == 1 else f"producers_{count}x{batch}"


def _by_threads(queue: Queue, count: int, until: float, ready: Sequence[bytes]) -> int:
    done = [0] * count
    failed: list[Exception] = []

    def produce(number: int) -> None:
        try:
            while time.perf_counter() < until:
                queue.put(ready)
                done[number] += len(ready)
        except Exception as error:  # of any library: it is reported in the thread that can
            failed.append(error)

    threads = [threading.Thread(target=produce, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise BenchmarkError(f"{len(failed)} of {count} producers failed: {failed[0]!r}")
    return sum(done)


def main(arguments: Sequence[str]) -> int:
    """Do the work of the one argument; print what was measured."""
    spec = msgspec.json.decode(arguments[0], type=Spec)
    try:
        session = run(spec)
    except (BenchmarkError, ImportError) as error:
        session = Session(reopen_s=0.0, peak_bytes=0, laps=(), refused=str(error))
    sys.stdout.write(msgspec.json.encode(session).decode() + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
