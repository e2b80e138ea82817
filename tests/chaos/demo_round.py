"""Runs `skerry demo --round` and keeps its figures: `python -m tests.chaos.demo_round`.

Adds to docs/evidence/demo-round.json; the record stands while the files it exercises are unchanged. Exit
status: the demo's own; a run that did not come out as it should is not recorded.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from typing import Any

from tests.chaos.evidence import ROOT, SERVICES, load_evidence, save_evidence

COMMAND = 'make demo ARGS="--round --json"'
#: The services, what trains and merges, and the engine that judges.
EXERCISES = (*SERVICES, "federation", "twin/fleet")
_PLAIN = (
    "submitted",
    "done",
    "lost",
    "done_twice",
    "backlog_max",
    "outage_s",
    "drain_s",
    "placed_across",
    "placement_ms",
    "broker",
    "agreed",
    "wall_s",
    "rounds",
    "run",
    "policy",
    "rollout",
    "bad_policies",
)


def main() -> int:
    """Run it once and record what it found."""
    record = load_evidence("demo-round", COMMAND, EXERCISES)
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "skerry.cli", "demo", "--round", "--json"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        check=False,
    )
    if done.returncode != 0:
        print("the demo did not come out as it should; nothing is recorded", file=sys.stderr)
        return done.returncode
    document = json.loads(done.stdout)
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    save_evidence(record.with_entry(1, entry_of(document, time.monotonic() - began, spent)))
    return 0


def entry_of(document: dict[str, Any], wall_s: float, spent: resource.struct_rusage) -> dict[str, Any]:
    """Return what is kept of a run. cpu_s: of all its processes but the coordinator that was killed."""
    return {
        "process_s": round(wall_s, 1),
        "cpu_s": round(spent.ru_utime + spent.ru_stime, 1),
        **{name: document[name] for name in _PLAIN},
    }


if __name__ == "__main__":
    sys.exit(main())
