"""Kills the owner of a queue again and again, and compares the queue with all that it had acknowledged.

`python -m tests.chaos.queue_torture --kills 15000 --jobs 2`, or `make torture ARGS='queue --kills 15000'`,
adds to docs/evidence/queue-torture.json, a bout at a time, so that a long count can be interrupted and
resumed; a record stands while the files it exercises are unchanged. An owner is forked from a warm parent,
gets SIGKILL 5 to 200 ms later, and the next one opens what it left; after every second kill on average the
whole database is checked for integrity and compared task by task. In a bout the database is never emptied.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import secrets
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

import msgspec

from skerry.clock import SystemClock
from skerry.lock import DirectoryLock
from task_queue.sqlite_store import SqliteStore
from task_queue.testing_disk import integrity
from tests.chaos.evidence import ROOT, load_evidence, queue_files, save_evidence
from tests.chaos.queue_owner import LIMITS, PRODUCERS, own
from tests.chaos.queue_promises import Promises

KILLS_A_BOUT = 250
_KILL_AFTER_S = (0.005, 0.2)
_LOOK, _LOOK_CLOSELY = 0.5, 0.1
_SHOWN = 20
#: A kill takes nothing from the page cache: memory serves as well as a disk, and every other bout uses it.
_MEMORY = Path("/dev/shm")


class Bout(msgspec.Struct, frozen=True, kw_only=True):
    """One queue's life. accepted, done, reported: acknowledged in all; looks: whole comparisons."""

    seed: int
    kills: int
    producers: int
    looks: int
    accepted: int
    done: int
    reported: int
    file_bytes: int
    seconds: float
    violations: tuple[str, ...]


def run_bout(folder: Path, *, seed: int, kills: int) -> Bout:
    """Kill so many owners of one queue, one after another, and compare."""
    dice = random.Random(seed)
    path = folder / "queue.db"
    promises = Promises()
    began, done, looks = time.monotonic(), 0, 0
    while done < kills and not promises.violations:
        one_life(path, dice, promises)
        done += 1
        if done == kills or dice.random() < _LOOK:
            looks += 1
            look(path, promises, closely=done == kills or dice.random() < _LOOK_CLOSELY)
    return Bout(
        seed=seed,
        kills=done,
        producers=PRODUCERS,
        looks=looks,
        accepted=promises.accepted,
        done=promises.done,
        reported=promises.reported,
        file_bytes=path.stat().st_size,
        seconds=round(time.monotonic() - began, 1),
        violations=tuple(promises.violations[:_SHOWN]),
    )


def one_life(path: Path, dice: random.Random, promises: Promises) -> None:
    """Fork an owner, hear what it says, kill it, and hear the rest."""
    seed, after_s = dice.getrandbits(32), dice.uniform(*_KILL_AFTER_S)
    ear, mouth = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(ear)
        own(path, seed, mouth)
    os.close(mouth)
    try:
        heard = b"".join(hear(ear, pid, after_s))
    finally:
        os.close(ear)
        _, status = os.waitpid(pid, 0)
    for line in heard.decode().splitlines():
        promises.hear(line)
    if os.waitstatus_to_exitcode(status) != -signal.SIGKILL:
        promises.violations.append("an owner ended by itself")


def hear(ear: int, pid: int, after_s: float) -> Iterator[bytes]:
    """Yield what an owner says; kill it after a while, and go on to the end of what it had said."""
    deadline = time.monotonic() + after_s
    is_alive = True
    while True:
        left = max(0.0, deadline - time.monotonic()) if is_alive else None
        if not select.select([ear], [], [], left)[0]:
            os.kill(pid, signal.SIGKILL)
            is_alive = False
            continue
        said = os.read(ear, 1 << 16)
        if not said:
            if is_alive:
                os.kill(pid, signal.SIGKILL)  # it has closed its end: it is ending by itself, or has
            return
        yield said


def look(path: Path, promises: Promises, *, closely: bool) -> None:
    """Check the file and compare every record; the look is one more restart."""
    if not path.exists():
        return  # no owner has come so far yet
    with DirectoryLock(path.parent):  # it ended with its process
        said = integrity(path)
        if said != ["ok"]:
            promises.violations.append(f"integrity: {said[:3]}")
            return
        clock = SystemClock()
        store = SqliteStore.open(path, now=clock.now(), wall_s=clock.wall_s, limits=LIMITS)
        try:
            promises.compare(store, clock.now(), with_invariants=closely)
        finally:
            store.close()


def main() -> int:
    """Add bouts to the record until it holds the wanted number of kills."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--kills", type=int, default=15000, help="kills that the record shall hold")
    parser.add_argument("--jobs", type=int, default=1, help="queues that are tortured at the same time")
    parser.add_argument("--seed", type=int, default=None, help="run one bout with this seed, record nothing")
    asked = parser.parse_args()
    if asked.seed is not None:
        bout = bout_here(asked.seed, asked.kills)
        print(json.dumps(msgspec.to_builtins(bout)))
        return 1 if bout.violations else 0
    record = load_evidence("queue-torture", "make torture ARGS='queue --kills 15000'", queue_files())
    missing = max(0, asked.kills - record.count)
    shares = [min(KILLS_A_BOUT, missing - begin) for begin in range(0, missing, KILLS_A_BOUT)]
    with ThreadPoolExecutor(max_workers=asked.jobs) as pool:
        for future in as_completed([pool.submit(bout_apart, secrets.randbits(32), n) for n in shares]):
            bout = future.result()
            record = record.with_entry(bout.kills, msgspec.to_builtins(bout))
            save_evidence(record)
            print(f"{record.count} of {asked.kills} kills", file=sys.stderr, flush=True)
            if bout.violations:
                print("\n".join(bout.violations), file=sys.stderr)
                pool.shutdown(cancel_futures=True)
                return 1
    print(json.dumps({"kills": record.count, "bouts": len(record.entries), "violations": 0}))
    return 0


def bout_here(seed: int, kills: int) -> Bout:
    """Run a bout in this process, which must have no threads."""
    base = _MEMORY if seed % 2 and _MEMORY.is_dir() else None
    with tempfile.TemporaryDirectory(prefix="queue-torture-", dir=base) as folder:
        return run_bout(Path(folder), seed=seed, kills=kills)


def bout_apart(seed: int, kills: int) -> Bout:
    """Run a bout in a process of its own: one without threads, so that it may fork."""
    command = [sys.executable, "-m", "tests.chaos.queue_torture", f"--seed={seed}", f"--kills={kills}"]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, check=False)
    return msgspec.json.decode(done.stdout, type=Bout)


if __name__ == "__main__":
    sys.exit(main())
