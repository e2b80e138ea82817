"""Kills the coordinator and agents at random moments of a federated run, then asks what became of each reply.

`.venv-train/bin/python -m tests.chaos.round_kills --kills 20` adds bouts to docs/evidence/round-kills.json
until it holds so many kills of the coordinator and as many of agents; a record stands while the files it
exercises are unchanged. Needs the training environment: the run's worker is Flower.
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
from collections.abc import Iterator
from pathlib import Path

import msgspec

from skerry.round_documents import RoundView
from tests.chaos.evidence import SERVICES, load_evidence, save_evidence
from tests.train.fleet import Rounds, plan, running

#: Of the coordinator, and as many of agents.
KILLS_A_BOUT = 5
#: A round over two nodes takes one to three seconds: a kill lands in each part of one.
_LONGEST_PAUSE_S = 2.5
#: Why a reply of a run without bad nodes may be refused.
_IN_ORDER = frozenset({"", "superseded", "run_over", "duplicate"})


class Bout(msgspec.Struct, frozen=True, kw_only=True):
    """One run's life. replies: what became of them, by state.  problems: empty when all is as it must be."""

    seed: int
    coordinator: int
    agents: int
    versions_made: int
    replies: dict[str, int]
    wall_s: float
    problems: tuple[str, ...]


def run_bout(directory: Path, *, seed: int, kills: int) -> Bout:
    """Kill the coordinator so often, and agents as often, while a run makes a version for each kill."""
    dice = random.Random(seed)
    began = time.monotonic()
    wanted = 2 * kills
    with running(directory, plan("a"), plan("b")) as fleet:
        rounds = Rounds(fleet)
        words = ("--trainer", "null", "--rounds", str(wanted), "--quorum", "1", "--deadline", "10")
        rounds("start", "--name", "r1", "--set", "size=2000", *words)
        victims = [fleet.coordinator] * kills + [fleet.agents[dice.choice("ab")] for _ in range(kills)]
        dice.shuffle(victims)
        for victim in victims:
            time.sleep(dice.uniform(0.1, _LONGEST_PAUSE_S))  # a random moment is what is tested
            victim.kill()
            victim.start()
        view = rounds.until("r1", lambda view: view.has_ended)
    return Bout(
        seed=seed,
        coordinator=kills,
        agents=kills,
        versions_made=view.version,
        replies=dict(Counter(one.state for one in view.participants)),
        wall_s=round(time.monotonic() - began, 1),
        problems=tuple(problems_of(view, wanted)),
    )


def problems_of(view: RoundView, wanted: int) -> Iterator[str]:
    """Yield what is not as it must be: the run's end, replies merged twice or lost, odd refusals."""
    if view.state != "done" or view.version != wanted:
        yield f"the run is {view.state} at version {view.version} of {wanted}: {view.reason}"
    counted = Counter(one.counted_in for one in view.participants if one.state == "accepted")
    for made in view.versions:
        if made.version and made.accepted != counted[made.version]:
            yield f"version {made.version} merged {made.accepted} replies, {counted[made.version]} say so"
    asked = Counter((one.node, one.version) for one in view.participants)
    yield from (f"{node} was asked twice for {number}" for (node, number), n in asked.items() if n > 1)
    for one in view.participants:
        if one.state in ("received", "late"):
            yield f"{one.node}'s reply to version {one.version} was kept, and is neither merged nor refused"
    for code in sorted({o.code for o in view.participants} | {o.code for o in view.refused}):
        if code not in _IN_ORDER:
            yield f"a reply was refused as {code}"


def main() -> int:
    """Add bouts to the record until it holds the wanted number of kills."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--kills", type=int, default=20, help="of the coordinator, and as many of agents")
    parser.add_argument("--seed", type=int, default=None, help="run one bout with this seed, record nothing")
    asked = parser.parse_args()
    if asked.seed is not None:
        bout = _bout(asked.seed, KILLS_A_BOUT)
        return 1 if bout.problems else 0
    command = f".venv-train/bin/python -m tests.chaos.round_kills --kills {asked.kills}"
    record = load_evidence("round-kills", command, (*SERVICES, "federation"))
    while record.count < 2 * asked.kills:
        left = asked.kills - record.count // 2
        bout = _bout(secrets.randbits(32), min(KILLS_A_BOUT, left))
        record = record.with_entry(bout.coordinator + bout.agents, msgspec.to_builtins(bout))
        save_evidence(record)
        if bout.problems:
            return 1
    print(json.dumps({"kills": record.count, "bouts": len(record.entries), "clean": True}))
    return 0


def _bout(seed: int, kills: int) -> Bout:
    with tempfile.TemporaryDirectory(prefix="skerry-round-kills-") as directory:
        bout = run_bout(Path(directory), seed=seed, kills=kills)
    words = "\n".join(bout.problems) or "clean"
    print(f"seed {seed}: {2 * kills} kills in {bout.wall_s:.0f} s: {words}", file=sys.stderr, flush=True)
    return bout


if __name__ == "__main__":
    sys.exit(main())
