"""Kills agents, the coordinator and the broker at random moments, then compares every record task by task.

`python -m tests.chaos.torture --kills 100` adds to docs/evidence/torture.json, one bout at a time, so that a
long count can be interrupted and resumed; a record stands while the files it exercises are unchanged.
"""

from __future__ import annotations

import argparse
import json
import random
import secrets
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import msgspec
import psutil

from skerry.cli.demo.brokers import start_broker
from skerry.cli.demo.fleet import Fleet, NodePlan
from skerry.cli.demo.reckoning import ask_agents, read_files
from skerry.cli.demo.story import add_models
from skerry.cli.demo.submitting import SubmissionLog, Submitter
from skerry.cli.demo.watching import Watch
from skerry.cli.demo.workload import Kind, all_kinds
from skerry.task import TaskSpec
from tests.chaos.evidence import load_evidence, save_evidence

PLANS = (
    NodePlan(name="quay-1", region="north"),
    NodePlan(name="reef-1", region="south", boards=("coral-usb",)),
)
KILLS_A_BOUT = 10
#: A task that dies of its tries would say nothing about the queue: more of them than a bout has kills.
RETRIES = 50
_PAUSE_S = 0.05
_DRAIN_TIMEOUT_S = 120.0
_CHILDREN_TIMEOUT_S = 5.0
_SHARES = {
    "quay-1": ("count", "pitch", "count-in-south", "pitch-on-tpu", "file-type"),
    "reef-1": ("count", "pitch", "count-in-north", "pitch-on-tpu", "count"),
}


class Bout(msgspec.Struct, frozen=True, kw_only=True):
    """One fleet's life: what was killed, and what the reckoning found."""

    seed: int
    kills: dict[str, int]
    submitted: int
    lost: int
    done_twice: int
    orphans: int
    problems: tuple[str, ...]

    @property
    def is_clean(self) -> bool:
        """Nothing lost, nothing twice, no child left, every record agrees."""
        return not (self.lost or self.done_twice or self.orphans or self.problems)


def run_bout(directory: Path, *, seed: int, kills: int, say: Callable[[str], None]) -> Bout:
    """Start a fleet, kill its parts `kills` times while tasks come in, let it drain, and reckon."""
    dice = random.Random(seed)
    witness = directory / "witness.txt"
    log = SubmissionLog(directory / "submitted.txt")
    broker = start_broker(directory / "broker")
    killed: Counter[str] = Counter()
    orphans = 0
    try:
        with Fleet(directory, broker, PLANS, witness) as fleet:
            fleet.start()
            kinds = all_kinds(add_models(fleet), witness)
            submitters = _submitters(fleet, kinds, log, tasks=kills * 12)
            for _ in range(kills):
                time.sleep(dice.uniform(0.05, 1.2))  # a random moment is the point
                victim = dice.choice(("agent", "agent", "coordinator", "broker"))
                killed[victim] += 1
                orphans += _kill(fleet, victim, dice)
            _finish(fleet, submitters)
            answers = ask_agents(fleet, log.entries, kinds)
        verdict = read_files(fleet, log.entries, witness)
    finally:
        broker.stop()
        log.close()
    bout = Bout(
        seed=seed,
        kills=dict(killed),
        submitted=verdict.submitted,
        lost=verdict.lost,
        done_twice=verdict.done_twice,
        orphans=orphans,
        problems=(*verdict.problems, *answers.wrong),
    )
    say(f"seed {seed}: {sum(killed.values())} kills, {bout.submitted} tasks, clean: {bout.is_clean}")
    return bout


def _submitters(fleet: Fleet, kinds: dict[str, Kind], log: SubmissionLog, *, tasks: int) -> list[Submitter]:
    made = []
    for name, agent in fleet.agents.items():
        pattern = _SHARES[name]
        share = [_patient(kinds[pattern[n % len(pattern)]]) for n in range(tasks)]
        made.append(Submitter(name, agent.socket_path, share, log, _PAUSE_S))
        made[-1].start()
    return made


def _patient(kind: Kind) -> Kind:
    """The same kind with tries enough for every kill of a bout: each kill costs what runs one of them."""

    def make(number: int) -> TaskSpec:
        return msgspec.structs.replace(kind.make(number), retries=RETRIES)

    return msgspec.structs.replace(kind, make=make)


def _kill(fleet: Fleet, victim: str, dice: random.Random) -> int:
    """Kill one part, start it again after a moment; return how many of an agent's children outlived it."""
    if victim == "broker":
        fleet.broker.kill()
        time.sleep(dice.uniform(0, 0.5))
        fleet.broker.restart()
        return 0
    service = (
        fleet.coordinator if victim == "coordinator" else fleet.agents[dice.choice(sorted(fleet.agents))]
    )
    children = psutil.Process(service.pid).children(recursive=True)
    service.kill()
    _, alive = psutil.wait_procs(children, timeout=_CHILDREN_TIMEOUT_S)
    time.sleep(dice.uniform(0, 0.5))
    service.start()
    return len(alive)


def _finish(fleet: Fleet, submitters: list[Submitter]) -> None:
    watch = Watch({name: agent.socket_path for name, agent in fleet.agents.items()})
    deadline = time.monotonic() + _DRAIN_TIMEOUT_S
    while any(s.is_alive() for s in submitters) or not watch.is_drained:
        for submitter in submitters:
            if submitter.error is not None:
                raise submitter.error
        if time.monotonic() > deadline:
            raise TimeoutError(f"not drained after {_DRAIN_TIMEOUT_S:.0f} s: {watch.samples}")
        time.sleep(0.2)  # other processes work meanwhile
        watch.sample()


def main() -> int:
    """Add bouts to the record until it holds the wanted number of kills."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--kills", type=int, default=100, help="kills that the record shall hold")
    parser.add_argument("--seed", type=int, default=None, help="run one bout with this seed, record nothing")
    parser.add_argument("--keep", type=Path, default=None, help="keep the bout's files in this new directory")
    asked = parser.parse_args()
    if asked.seed is not None:
        return 0 if _one(asked.seed, asked.keep).is_clean else 1
    record = load_evidence("torture", "make torture")
    while record.count < asked.kills:
        bout = _one(secrets.randbits(32), None)
        record = record.with_entry(sum(bout.kills.values()), msgspec.to_builtins(bout))
        save_evidence(record)
        if not bout.is_clean:
            print("\n".join(bout.problems[:20]), file=sys.stderr)
            return 1
    print(json.dumps({"kills": record.count, "bouts": len(record.entries), "clean": True}))
    return 0


def _one(seed: int, keep: Path | None) -> Bout:
    def say(line: str) -> None:
        print(line, file=sys.stderr, flush=True)

    if keep is not None:
        keep.mkdir(parents=True)
        return run_bout(keep, seed=seed, kills=KILLS_A_BOUT, say=say)
    with tempfile.TemporaryDirectory(prefix="skerry-torture-") as directory:
        return run_bout(Path(directory), seed=seed, kills=KILLS_A_BOUT, say=say)


if __name__ == "__main__":
    sys.exit(main())
