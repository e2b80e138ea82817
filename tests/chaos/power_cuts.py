"""Cuts the power under a store at random writes and syncs, and compares what is left with every commit.

`python -m tests.chaos.power_cuts --points 1000` adds to docs/evidence/power-cuts.json, a bout at a time; a
record stands while the files it exercises are unchanged. A point is one cut: in the middle of any write, sync
or removal that the store asks for, while it works, tidies up, restarts, or recovers from the cut before. The
next point goes on with what the cut has left. `--synchronous normal` is the control that must lose.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import json
import random
import secrets
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import apsw
import msgspec

from skerry.testing import ManualClock
from task_queue.damage.quarantine import FOLDER as SET_ASIDE
from task_queue.limits import Limits, Synchronous
from task_queue.sqlite_store import SqliteStore
from task_queue.testing_lossy_disk import LossyDisk, on_lossy_disks
from tests.chaos.evidence import load_evidence, queue_files, save_evidence
from tests.queue.histories import History

VFS = "lossy"
POINTS_A_BOUT = 100
#: Nothing here depends on a real disk: the lossy one remembers what was synced.
FAST = "/dev/shm" if Path("/dev/shm").is_dir() else None
#: Small enough that ended tasks are pruned and messages evicted while it works.
SMALL = Limits(
    ballast_bytes=0,
    control_ballast_bytes=0,
    free_floor_bytes=0,
    max_bytes=1 << 20,
    keep_ended=80,
    remember_ended=100,
    remember_s=60.0,
)
_SHARE_IN_OPEN = 0.3
_STEPS_IN_OPEN, _STEPS_AT_WORK = 25, 250
_TIDIES, _RESTARTS = 0.04, 0.02


class Aim(msgspec.Struct, frozen=True):
    """Which steps count down to the cut, and how many others lie between two of them, roughly."""

    kinds: tuple[str, ...]
    rarity: int


_AIMS = (
    Aim(("write", "sync", "truncate", "remove"), 1),
    Aim(("sync",), 12),
    Aim(("truncate", "remove", "sync"), 8),
)


class Bout(msgspec.Struct, kw_only=True):
    """What one run of points found. moments: in which step the power went."""

    seed: int
    synchronous: Synchronous
    points: int = 0
    commits: int = 0
    moments: Counter[str] = msgspec.field(default_factory=Counter)
    operations: Counter[str] = msgspec.field(default_factory=Counter)
    states_that_lost: int = 0
    most_commits_lost: int = 0
    damaged: int = 0
    unknown: int = 0  #: states that no commit ever made: half done, doubled, invented

    @property
    def keeps_its_promises(self) -> bool:
        """Nothing lost, nothing damaged, nothing half done."""
        return not (self.states_that_lost or self.damaged or self.unknown)


def run_bout(folder: Path, *, seed: int, points: int, synchronous: Synchronous = "full") -> Bout:
    """Work on a lossy disk through so many cuts and compare what each has left."""
    with lossy_bench(folder, Bout(seed=seed, synchronous=synchronous)) as bench:
        for _ in range(points):
            bench.one_point()
        return bench.result()


@contextmanager
def lossy_bench(folder: Path, bout: Bout) -> Iterator[Bench]:
    """Yield a bench whose files lie on a lossy disk."""
    disk = LossyDisk(VFS)
    home = folder / "home"
    try:
        with on_lossy_disks(lambda path: VFS if path.is_relative_to(home) else None):
            yield Bench(disk, home, folder / "after", bout)
    finally:
        disk.unregister()


class Bench:
    """One disk, the store on it, and the states that it has committed."""

    def __init__(self, disk: LossyDisk, home: Path, after: Path, bout: Bout) -> None:
        """Begin with an empty folder."""
        self._disk, self._home, self._after, self._bout = disk, home, after, bout
        self._rng = random.Random(bout.seed)
        self._clock = ManualClock()
        self._history = History(self._clock, self._rng)
        self._left: dict[str, bytes] = {}
        self._countdown = 0
        self._only = _AIMS[0]
        if bout.synchronous == "normal":
            self._left = self._made_in_order()
        self._cut: dict[str, bytes] | None = None
        self._states: list[str] = []
        self._promised = 0  #: the state that was acknowledged last when the power went
        disk.before_step = self._step

    def _made_in_order(self) -> dict[str, bytes]:
        fresh_folder(self._after, {})
        self._open(self._after).close()
        return {path.name: path.read_bytes() for path in self._after.iterdir()}

    def births(self, every: int) -> Iterator[bool]:
        """Cut the power at every n-th step of the first opening; yield whether what is left can be opened."""
        for step in itertools.count(1, every):
            fresh_folder(self._home, {})
            self._disk.forget()
            self._cut_after(step, _AIMS[0])
            self._open(self._home).close()
            if self._cut is None:
                return
            fresh_folder(self._after, self._cut)
            self._open(self._after).close()
            yield read_state(self._after / "queue.db") is not None

    def one_point(self) -> None:
        """Open what the last cut has left, work until the next one, and judge it."""
        in_open = self._rng.random() < _SHARE_IN_OPEN
        fresh_folder(self._home, self._left)
        self._states = self._state_left()
        self._disk.forget()
        # The control hardly syncs: who waits for a sync there waits for a checkpoint.
        aim = self._rng.choice(_AIMS) if self._bout.synchronous == "full" else _AIMS[0]
        most = _STEPS_IN_OPEN if in_open else _STEPS_AT_WORK
        self._cut_after(self._rng.randint(1, max(3, most // aim.rarity)), aim)
        store = self._open(self._home)
        self._history.restarted()
        if self._cut is not None:
            self._judge_open(store)
        else:
            self._work(store)
        assert self._cut is not None
        self._left = self._cut
        self._bout.points += 1

    def result(self) -> Bout:
        """Return what was found."""
        self._bout.operations.update({op.__name__: count for op, count in self._history.performed.items()})
        return self._bout

    def _cut_after(self, steps: int, aim: Aim) -> None:
        self._cut, self._countdown, self._only = None, steps, aim

    def _step(self, kind: str) -> None:
        self._countdown -= kind in self._only.kinds
        if self._countdown == 0 and self._cut is None:
            self._bout.moments[kind] += 1
            self._cut = self._disk.after_cut(self._rng)
            self._promised = len(self._states) - 1

    def _open(self, folder: Path) -> SqliteStore:
        limits = msgspec.structs.replace(SMALL, synchronous=self._bout.synchronous)
        store = SqliteStore.open(
            folder / "queue.db", now=self._clock.now(), wall_s=self._clock.wall_s, limits=limits
        )
        if (folder / SET_ASIDE).exists():  # what a power cut leaves was taken for damage
            self._bout.damaged += 1
            shutil.rmtree(folder / SET_ASIDE)
        return store

    def _work(self, store: SqliteStore) -> None:
        """Work until the power goes; a state is known as soon as its commit was acknowledged."""
        witness = apsw.Connection(str(self._home / "queue.db"), flags=apsw.SQLITE_OPEN_READONLY)
        self._states += [self._state(witness)]
        while self._cut is None:
            kind = self._rng.random()
            if kind < _RESTARTS:
                witness.close()
                store = self._restart(store)
                if self._cut is not None:
                    self._judge_open(store)
                    return
                witness = apsw.Connection(str(self._home / "queue.db"), flags=apsw.SQLITE_OPEN_READONLY)
                self._states.append(self._state(witness))
            elif kind < _RESTARTS + _TIDIES:
                store.tidy()
            else:
                answers = store.apply(self._history.propose(), now=self._clock.now())
                self._history.hear(answers)
                self._bout.commits += 1
                self._states.append(self._state(witness))
        witness.close()
        store.close()
        self._judge()

    @property
    def _without(self) -> tuple[str, ...]:
        """The control is compared without the book: its openings are not synced one by one."""
        return ("store",) if self._bout.synchronous == "normal" else ()

    def _state(self, db: apsw.Connection) -> str:
        return state_of(db, self._without)

    def _state_left(self) -> list[str]:
        """Where the control may fall back to: what was there before this opening."""
        if self._bout.synchronous == "full":
            return []
        fresh_folder(self._after, self._left)
        return [read_state(self._after / "queue.db", self._without) or ""]

    def _restart(self, store: SqliteStore) -> SqliteStore:
        store.close()
        self._history.restarted()
        return self._open(self._home)

    def _judge(self) -> None:
        """Look which commit the state left is; the one that was under way may be there or not."""
        assert self._cut is not None
        fresh_folder(self._after, self._cut)
        found = read_state(self._after / "queue.db", self._without)
        if found is None:
            self._bout.damaged += 1
        elif found not in self._states:
            self._bout.unknown += 1
        else:
            lost = self._promised - max(n for n, state in enumerate(self._states) if state == found)
            self._bout.states_that_lost += lost > 0
            self._bout.most_commits_lost = max(self._bout.most_commits_lost, lost)

    def _judge_open(self, store: SqliteStore) -> None:
        """A cut in the middle of an opening: opening again comes to the same."""
        assert self._cut is not None
        store.close()
        expected = read_state(self._home / "queue.db", without=("store",))
        fresh_folder(self._after, self._cut)
        again = self._open(self._after)
        again.close()
        found = read_state(self._after / "queue.db", without=("store",))
        if found is None:
            self._bout.damaged += 1
        elif found != expected and self._bout.synchronous == "normal":
            self._bout.states_that_lost += 1  # it was closing before: nothing tells how far it had come
        elif found != expected:
            self._bout.unknown += 1


def fresh_folder(folder: Path, files: dict[str, bytes]) -> None:
    """Make the folder anew, with these files."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)


def read_state(path: Path, without: tuple[str, ...] = ()) -> str | None:
    """Return the state of a database file, None when it is damaged."""
    try:
        db = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
        try:
            if db.execute("PRAGMA integrity_check").fetchall() != [("ok",)]:
                return None
            return state_of(db, without)
        finally:
            db.close()
    except (apsw.CorruptError, apsw.NotADBError, apsw.CantOpenError, apsw.IOError):
        return None


def state_of(db: apsw.Connection, without: tuple[str, ...] = ()) -> str:
    """Return a hash of every row of every table."""
    digest = hashlib.blake2b(digest_size=16)
    with db:
        tables = db.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name").fetchall()
        for (table,) in tables:
            if table not in without:
                digest.update(repr((table, db.execute(f'SELECT * FROM "{table}"').fetchall())).encode())
    return digest.hexdigest()


def main() -> int:
    """Add bouts to the record until it holds the wanted number of points."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--points", type=int, default=1000, help="cuts that the record shall hold")
    parser.add_argument("--synchronous", choices=("full", "normal"), default="full", help="level to run")
    parser.add_argument("--seed", type=int, default=None, help="run one bout with this seed, record nothing")
    asked = parser.parse_args()
    if asked.seed is not None:
        bout = one_bout(asked.seed, asked.synchronous)
        print(json.dumps(msgspec.to_builtins(bout)))
        return 0 if is_as_it_should_be(bout) else 1
    name = "power-cuts" if asked.synchronous == "full" else f"power-cuts-{asked.synchronous}"
    record = load_evidence(name, f"python -m tests.chaos.power_cuts --points {asked.points}", queue_files())
    while record.count < asked.points:
        bout = one_bout(secrets.randbits(32), asked.synchronous)
        record = record.with_entry(bout.points, msgspec.to_builtins(bout))
        save_evidence(record)
        print(f"{record.count} of {asked.points} points", file=sys.stderr)
        if not is_as_it_should_be(bout):
            print(json.dumps(msgspec.to_builtins(bout)), file=sys.stderr)
            return 1
    print(json.dumps({"points": record.count, "synchronous": asked.synchronous, "as it should be": True}))
    return 0


def one_bout(seed: int, synchronous: Synchronous) -> Bout:
    """Run a bout in a folder of its own."""
    with tempfile.TemporaryDirectory(prefix="power-", dir=FAST) as folder:
        return run_bout(Path(folder), seed=seed, points=POINTS_A_BOUT, synchronous=synchronous)


def is_as_it_should_be(bout: Bout) -> bool:
    """`full` keeps its promises; `normal`, the control, loses commits and damages nothing."""
    if bout.synchronous == "full":
        return bout.keeps_its_promises
    return bool(bout.states_that_lost) and not bout.damaged and not bout.unknown


if __name__ == "__main__":
    sys.exit(main())
