"""Long outages of the twin at their full size, with real files: run once each, goes on where it was stopped.

`make soak` runs each that docs/evidence/soak.json does not hold yet, and adds what it came to.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

from skerry.errors import SpecError
from tests.chaos.evidence import ROOT, SERVICES, load_evidence, save_evidence
from twin.scenario.library import find

EXERCISES = (*SERVICES, "twin/faithful", "twin/scenario")
SCENARIOS = ("outage-2h", "outage-72h")
COMMAND = "skerry twin run NAME --jobs 2 --json"


def run(name: str) -> dict[str, Any]:
    """Run a scenario in two processes; how far it has come is said on standard error."""
    command = [sys.executable, "-m", "skerry.cli", "twin", "run", name, "--jobs", "2", "--json"]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    if done.returncode not in (0, 1):
        raise SystemExit(f"{name} could not be run")
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def is_clean(report: dict[str, Any]) -> bool:
    """Everything that was submitted was done, once, and no law was broken."""
    faults = report["lost"] + report["done_twice"] + report["violations"]
    return faults == 0 and report["done"] == report["submitted"] > 0


def main(argv: Sequence[str] | None = None) -> int:
    """Run what the record lacks; 1 at the first scenario that is not clean."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("scenarios", nargs="*", default=SCENARIOS, help="names, or files")
    asked = parser.parse_args(argv).scenarios
    try:
        names = [find(one).name for one in asked]
    except SpecError as error:
        parser.error(str(error))
    for one, name in zip(asked, names, strict=True):
        record = load_evidence("soak", COMMAND, EXERCISES)
        if any(entry["scenario"] == name for entry in record.entries):
            print(f"{name}: the record of it stands")
            continue
        report = run(one)
        print(json.dumps(report, indent=1))
        if not is_clean(report):
            return 1
        save_evidence(record.with_entry(report["submitted"], report))
    return 0


if __name__ == "__main__":
    sys.exit(main())
