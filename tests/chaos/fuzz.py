"""Random scenarios against the product, where nothing may be found, and against planted bugs, where all must.

`python -m tests.chaos.fuzz` searches for ten minutes with each of several seeds, then in copies of the
product, each with one bug, until it is found, and writes docs/evidence/fuzz.json.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from functools import partial
from pathlib import Path
from typing import Any

from tests.chaos.evidence import ROOT, SERVICES, load_evidence, save_evidence
from tests.twin.planting import PATCHES, apply_patch, copy_product, search

MOST = 1_000_000
EXERCISES = (*SERVICES, "twin", "tests/chaos/fuzz.py", "tests/twin/planting.py")


def search_product(seed: int, seconds: float) -> dict[str, Any]:
    """Search the product as it is; return what it came to."""
    return {"planted": "", **search(ROOT, most=MOST, seconds=seconds, seed=seed)}


def search_planted(patch: Path, seed: int, seconds: float) -> dict[str, Any]:
    """Search a copy with the bug in it; return what was found, and how soon."""
    with tempfile.TemporaryDirectory(prefix="skerry-planted-") as folder:
        copy = copy_product(Path(folder) / "product")
        against = apply_patch(patch, copy)
        assert not against, f"{patch.name} does not apply: {against}"
        found = search(copy, most=MOST, seconds=seconds, seed=seed)
    first = found["find"] and found["find"]["broken"][0]
    return {"planted": patch.stem, **found, "find": first and {"law": first["law"], "what": first["what"]}}


def is_as_it_should_be(entry: dict[str, Any]) -> bool:
    """Nothing in the product, something in every copy."""
    return (entry["find"] is not None) == bool(entry["planted"])


def _run(jobs: int, work: list[Callable[[], dict[str, Any]]]) -> Iterator[dict[str, Any]]:
    with ThreadPoolExecutor(jobs) as pool:
        try:
            for done in as_completed([pool.submit(one) for one in work]):
                entry = done.result()
                print(json.dumps(entry), flush=True)
                yield entry
        finally:
            pool.shutdown(cancel_futures=True)


def main() -> int:
    """Search, print each entry, and write the record when all is as it should be."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, nargs="*", default=[1, 2, 3, 4, 5])
    parser.add_argument("--seconds", type=float, default=600.0, help="for each seed")
    parser.add_argument("--planted-seconds", type=float, default=600.0, help="for each planted bug, at most")
    parser.add_argument("--planted-seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=1)
    asked = parser.parse_args()
    work = [partial(search_product, seed, asked.seconds) for seed in asked.seeds]
    planted = [partial(search_planted, patch, asked.planted_seed, asked.planted_seconds) for patch in PATCHES]
    record = load_evidence("fuzz", "python -m tests.chaos.fuzz", EXERCISES)
    is_well = True
    for entry in _run(asked.jobs, [*work, *planted]):
        is_well = is_well and is_as_it_should_be(entry)
        record = record.with_entry(entry["scenarios"], entry)
    if is_well:
        save_evidence(record)
    return 0 if is_well else 1


if __name__ == "__main__":
    sys.exit(main())
