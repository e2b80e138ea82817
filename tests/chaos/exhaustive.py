"""The exhaustive check to a depth too large for every run, and every planted bug: found or not, and when.

`python -m tests.chaos.exhaustive --depth 4 --faults 2` writes docs/evidence/exhaustive.json. A bug that no
interleaving of so few parts and steps shows is recorded as such: the search for scenarios is for those.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import msgspec

from tests.chaos.evidence import SERVICES, load_evidence, save_evidence
from tests.twin.planting import PATCHES, apply_patch, copy_product
from twin.faithful.exhaustive_run import check_tasks
from twin.faithful.exhaustive_setting import TASKS
from twin.faithful.exhaustive_values import Bounds

#: What a planted bug is looked for with.
PLANTED = ("--depth", "3", "--faults", "1", "--seconds", "20")


def check_planted(patch: Path) -> dict[str, Any]:
    """Plant a bug in a copy of the product and let the check run there."""
    with tempfile.TemporaryDirectory() as folder:
        copy = copy_product(Path(folder) / "product")
        against = apply_patch(patch, copy)
        if against:
            return {"planted": patch.stem, "found": "", "problem": f"it does not apply: {against}"}
        began = time.monotonic()
        done = subprocess.run(
            [sys.executable, "-m", "skerry.cli", "twin", "check", "--json", *PLANTED],
            cwd=copy,
            env={**os.environ, "PYTHONPATH": f"{copy}{os.pathsep}{copy / 'queue'}"},
            capture_output=True,
            text=True,
        )
    if done.returncode not in (0, 1):
        raise SystemExit(done.stderr[-2000:])
    last = json.loads(done.stdout)[-1]
    return {
        "planted": patch.stem,
        "found": last["broken"],
        "tasks": last["tasks"],
        "states": last["states"],
        "steps_to_it": len(last["trace"]),
        "wall_s": round(time.monotonic() - began, 1),
    }


def main() -> None:
    """Check everything, then each planted bug, and record both."""
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("--depth", type=int, default=4)
    words.add_argument("--faults", type=int, default=2)
    words.add_argument("--waits", type=int, default=1)
    asked = words.parse_args()
    bounds = Bounds(depth=asked.depth, faults=asked.faults, waits=asked.waits, followed=1000)
    command = f"python -m tests.chaos.exhaustive --depth {asked.depth} --faults {asked.faults}"
    record = load_evidence("exhaustive", command, (*SERVICES, "twin/faithful"))
    record = msgspec.structs.replace(record, count=0, entries=(), command=command)
    is_broken = False
    for tasks in TASKS:
        (checked,) = check_tasks(tasks, bounds, progress=print)
        print(checked, flush=True)
        is_broken = is_broken or bool(checked.broken)
        record = record.with_entry(checked.states, msgspec.to_builtins(checked))
        save_evidence(record)
    for patch in PATCHES:
        entry = check_planted(patch)
        print(entry, flush=True)
        record = record.with_entry(0, entry)
        save_evidence(record)
    if is_broken:
        raise SystemExit("a law is broken: see the record")


if __name__ == "__main__":
    main()
