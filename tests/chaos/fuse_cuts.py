"""Cuts the power under a whole agent: its data directory lies on a file system that forgets (FUSE).

`python -m tests.chaos.fuse_cuts --points 100`, or `make torture ARGS='files --points 100'`, adds to
docs/evidence/fuse-cuts.json, a bout at a time; a record stands while the files it exercises are unchanged. An
agent process takes tasks over its interface and runs them; at a random moment (while it starts, too) its disk
stops, the process is killed, and the next agent starts on what was synced. What the submitters were told, and
what the tasks did, is written down outside. Needs fusermount3, /dev/fuse and the rights to mount.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path

import msgspec
import psutil

from skerry.client import Client
from skerry.endpoint import Endpoint
from skerry.errors import SkerryError
from skerry.task import CommandSpec, Resources, TaskSpec
from task_queue.damage.quarantine import FOLDER as SET_ASIDE
from task_queue.limits import Synchronous
from tests.chaos.evidence import ROOT, load_evidence, save_evidence

POINTS_A_BOUT = 10
SUBMITTERS = 3
PATIENCE_S = 60.0
_CUT_IN_START = 0.3
_START_S, _WORK_S = (0.2, 1.6), (0.05, 1.0)
_RETRIES = 100
_AT_STAKE = 3  #: tasks that have ended, where so many were accepted, before the power goes
#: An agent, without a coordinator.
_EXERCISES = ("skerry", "queue/task_queue", "devices", "policy", "edge_agent")
_SETTINGS = """\
data_dir = "{data}"
[queue]
synchronous = "{synchronous}"
[api]
socket = "{socket}"
[limits]
retry_base_s = 0.05
retry_most_s = 0.2
[rules]
enabled = false
[devices.children]
kill_grace_s = 0.2
"""
_ENDS = {"idempotent": {"done"}, "at_most_once": {"done", "unknown"}}


class Bout(msgspec.Struct, frozen=True, kw_only=True):
    """One agent's life through cuts. effects: lines that tasks wrote; seen_done: ends heard before a cut."""

    seed: int
    points: int
    in_start: int
    accepted: int
    seen_done: int
    effects: int
    ends: dict[str, int]
    seconds: float
    violations: tuple[str, ...]


def lacks() -> str:
    """Return what this machine lacks for it; empty when nothing."""
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        return "/dev/fuse cannot be used"
    if shutil.which("fusermount3") is None:
        return "fusermount3 is not installed (Debian: fuse3)"
    return "" if find_spec("mfusepy") else "mfusepy is not installed (the extra dev)"


class Disk:
    """The lossy file system, mounted; each mounting is a process of its own."""

    def __init__(self, folder: Path) -> None:
        """Lay out the place; nothing is mounted."""
        self.mount, self._image = folder / "disk", folder / "image"
        self.mount.mkdir()
        self._process: subprocess.Popen[str] | None = None

    def power_on(self) -> None:
        """Mount what the last cut has left."""
        command = [sys.executable, "-m", "tests.chaos.lossy_files", str(self.mount), str(self._image)]
        self._process = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        deadline = time.monotonic() + PATIENCE_S
        while not os.path.ismount(self.mount):
            assert self._process.poll() is None, "the file system has ended"
            assert time.monotonic() < deadline, "nothing was mounted"
            time.sleep(0.01)  # the process starts in its own time; polled with a deadline

    def cut(self, seed: int) -> None:
        """Stop the disk: from now on every call fails, and only what was synced is left."""
        self._tell(f"cut {seed}")

    def allow_changes(self, is_allowed: bool) -> None:
        """Make the file system one that can only be read, or one that can be written again."""
        self._tell("writable" if is_allowed else "read-only")

    def _tell(self, line: str) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()
        assert self._process.stdout.readline() == "done\n"

    def unmount(self) -> None:
        """Take the mount away; a second call does nothing."""
        if self._process is not None:
            subprocess.run(["fusermount3", "-u", "-z", str(self.mount)], check=False, capture_output=True)
            self._process.kill()
            self._process.communicate()
            self._process = None


class Machine:
    """A disk, an agent on it, and what the world outside has seen."""

    def __init__(self, folder: Path, dice: random.Random, synchronous: Synchronous) -> None:
        """Lay out the folder."""
        self.disk = Disk(folder)
        self.dice = dice
        self.witness = folder / "witness"
        self.witness.touch()
        self.accepted: dict[str, str] = {}  #: with the effect that was declared
        self.seen_done: dict[str, int] = {}  #: with the effects it had then
        self._socket = folder / "agent.sock"
        self._config = folder / "agent.toml"
        data = self.disk.mount / "data"
        self._config.write_text(_SETTINGS.format(data=data, socket=self._socket, synchronous=synchronous))
        self._log = folder / "agent.log"
        self._agent: subprocess.Popen[bytes] | None = None
        self._is_up = False

    def start(self) -> None:
        """Power on and start the agent; it is not waited for."""
        self.disk.power_on()
        self._socket.unlink(missing_ok=True)
        command = [sys.executable, "-P", "-m", "edge_agent", "--config", str(self._config)]
        with self._log.open("ab") as log:
            self._agent = subprocess.Popen(command, stdout=log, stderr=log, cwd=self._config.parent)
        self._is_up = True

    def cut(self) -> None:
        """End everything at once, as a power cut does."""
        self._is_up = False
        self.disk.cut(self.dice.getrandbits(32))
        self.kill()

    def kill(self) -> None:
        """Kill the agent with all that it had started, and take its disk away."""
        try:
            if self._agent is not None:
                kill_all(self._agent)
        finally:
            self._agent = None
            self.disk.unmount()

    @contextmanager
    def client(self) -> Iterator[Client]:
        """Yield a client."""
        client = Client.at(Endpoint(socket=self._socket), timeout_s=5.0)
        try:
            yield client
        finally:
            client.close()

    def wait_ready(self) -> None:
        """Wait until the agent answers."""
        deadline = time.monotonic() + PATIENCE_S
        while not self._answers():
            assert self._agent is not None
            assert self._agent.poll() is None, self._log.read_text()[-2000:]
            assert time.monotonic() < deadline, "the agent does not come up"
            time.sleep(0.01)  # the process starts in its own time; polled with a deadline

    def _answers(self) -> bool:
        with socket.socket(socket.AF_UNIX) as probe:
            return probe.connect_ex(str(self._socket)) == 0

    def submit_for(self, seconds: float) -> list[threading.Thread]:
        """Begin to hand in tasks from several threads; they stop when the power goes."""
        ends = time.monotonic() + seconds
        threads = [threading.Thread(target=self._submit, args=(ends,)) for _ in range(SUBMITTERS)]
        for thread in threads:
            thread.start()
        return threads

    def _submit(self, ends: float) -> None:
        with self.client() as client:
            while self._is_up and time.monotonic() < ends:
                time.sleep(random.uniform(0, 0.08))  # what is accepted has to end within the bout
                effect = random.choice(("idempotent", "at_most_once"))
                try:
                    self.accepted[client.submit(self._task(effect)).task_id] = effect
                except (SkerryError, OSError):
                    if self._is_up and time.monotonic() < ends:
                        raise
                    return

    def _task(self, effect: str) -> TaskSpec:
        line = f'echo "$SKERRY_TASK_ID $SKERRY_FENCE" >> {self.witness}'
        return TaskSpec(
            spec=CommandSpec(argv=("sh", "-c", line)),
            resources=Resources(cpu_millicores=100, memory_bytes=1 << 26),
            retries=_RETRIES,
            effect=effect,  # type: ignore[arg-type]
        )

    def note_ends(self) -> int:
        """Write down how often what is reported as done has had its effect; return how many are new."""
        with self.client() as client:
            page = client.list(states=("done",), limit=200)
        effects = Counter(task_id for task_id, _ in self.effects())
        before = len(self.seen_done)
        for view in page.tasks:
            self.seen_done.setdefault(view.task_id, effects[view.task_id])
        return len(self.seen_done) - before

    def effects(self) -> list[tuple[str, str]]:
        """Return what tasks have done: id and fence, a line an effect."""
        lines = self.witness.read_text().splitlines()
        return [(line.split()[0], line.split()[1]) for line in lines]


def kill_all(process: subprocess.Popen[bytes]) -> None:
    """Kill a process with all that it has started."""
    family: list[psutil.Process] = []
    with suppress(psutil.NoSuchProcess):  # it may have ended by itself: its disk fails
        family = psutil.Process(process.pid).children(recursive=True)
    process.kill()
    for child in family:
        with suppress(psutil.NoSuchProcess):
            child.kill()
    process.wait()
    psutil.wait_procs(family, timeout=PATIENCE_S)


def run_bout(folder: Path, *, seed: int, points: int, synchronous: Synchronous = "full") -> Bout:
    """Cut the power so many times, let the last agent finish all, and reckon."""
    dice = random.Random(seed)
    machine = Machine(folder, dice, synchronous)
    began, in_start = time.monotonic(), 0
    lost: set[str] = set()
    try:
        for _ in range(points):
            machine.start()
            if machine.accepted and dice.random() < _CUT_IN_START:
                in_start += 1
                time.sleep(dice.uniform(*_START_S))  # a random moment is the point
            else:
                machine.wait_ready()
                lost |= set(missing(machine))
                work(machine, dice.uniform(*_WORK_S))
            machine.cut()
        machine.start()
        machine.wait_ready()
        violations, ends = reckon(machine, lost)
    finally:
        machine.kill()
    return Bout(
        seed=seed,
        points=points,
        in_start=in_start,
        accepted=len(machine.accepted),
        seen_done=len(machine.seen_done),
        effects=len(machine.effects()),
        ends=ends,
        seconds=round(time.monotonic() - began, 1),
        violations=tuple(violations[:20]),
    )


def work(machine: Machine, seconds: float) -> None:
    """Hand in tasks for a while; the power goes while some are under way, and not before some are done."""
    before = len(machine.accepted)
    threads = machine.submit_for(seconds)
    time.sleep(seconds * 0.8)  # a random moment is the point
    ends, deadline = machine.note_ends(), time.monotonic() + PATIENCE_S
    while ends < min(_AT_STAKE, len(machine.accepted) - before) and time.monotonic() < deadline:
        time.sleep(0.05)  # on a busy machine the agent needs its time; polled with a deadline
        ends += machine.note_ends()
    for thread in threads:
        thread.join()


def missing(machine: Machine) -> Iterator[str]:
    """Yield the accepted tasks that the agent does not know."""
    known: set[str] = set()
    before = None
    with machine.client() as client:
        while True:
            page = client.list(limit=200, before=before)
            known.update(view.task_id for view in page.tasks)
            if page.before is None:
                break
            before = page.before
    yield from set(machine.accepted) - known


def reckon(machine: Machine, lost: set[str]) -> tuple[list[str], dict[str, int]]:
    """Wait for every end and compare it with what was seen outside."""
    violations = [f"{task_id} was accepted and is lost" for task_id in lost | set(missing(machine))]
    if (machine.disk.mount / "data" / SET_ASIDE).exists():
        violations.append("what a power cut leaves was taken for damage, and set aside")
    states = {}
    with machine.client() as client:
        for task_id in machine.accepted:
            if not violations:
                states[task_id] = client.wait(task_id, PATIENCE_S).state
    fences: dict[str, list[str]] = defaultdict(list)
    for task_id, fence in machine.effects():
        fences[task_id].append(fence)
    for task_id, state in states.items():
        violations += judge(task_id, machine.accepted[task_id], state, fences[task_id])
    for task_id, count in machine.seen_done.items():
        if len(fences[task_id]) != count:
            violations.append(f"{task_id} was done with {count} effects and has {len(fences[task_id])}")
    return violations, dict(Counter(states.values()))


def judge(task_id: str, effect: str, state: str, fences: list[str]) -> Iterator[str]:
    """Yield what is wrong with one task."""
    if state not in _ENDS[effect]:
        yield f"{task_id} ({effect}) ended {state}"
    if len(set(fences)) != len(fences):
        yield f"{task_id} had two effects under one fence: {fences}"
    if effect == "at_most_once" and len(fences) > 1:
        yield f"{task_id} may have its effect once and had it under {fences}"
    if state == "done" and not fences:
        yield f"{task_id} is done and had no effect"


def main() -> int:
    """Add bouts to the record until it holds the wanted number of cuts."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--points", type=int, default=100, help="cuts that the record shall hold")
    parser.add_argument("--seed", type=int, default=None, help="run one bout with this seed, record nothing")
    asked = parser.parse_args()
    if lacks():
        print(f"this cannot run here: {lacks()}", file=sys.stderr)
        return 2
    if asked.seed is not None:
        bout = one_bout(asked.seed, asked.points)
        print(json.dumps(msgspec.to_builtins(bout)))
        return 1 if bout.violations else 0
    record = load_evidence("fuse-cuts", "make torture ARGS='files --points 100'", _EXERCISES)
    while record.count < asked.points:
        bout = one_bout(secrets.randbits(32), min(POINTS_A_BOUT, asked.points - record.count))
        record = record.with_entry(bout.points, msgspec.to_builtins(bout))
        save_evidence(record)
        print(f"{record.count} of {asked.points} cuts", file=sys.stderr, flush=True)
        if bout.violations:
            print("\n".join(bout.violations), file=sys.stderr)
            return 1
    print(json.dumps({"points": record.count, "bouts": len(record.entries), "violations": 0}))
    return 0


def one_bout(seed: int, points: int) -> Bout:
    """Run a bout in a folder of its own."""
    with tempfile.TemporaryDirectory(prefix="cuts-") as folder:
        return run_bout(Path(folder), seed=seed, points=points)


if __name__ == "__main__":
    sys.exit(main())
