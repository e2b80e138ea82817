"""Breaks a queue's files in every way and compares what comes back with what was acknowledged.

`python -m tests.chaos.broken_files --flips 500 --cuts` adds to docs/evidence/broken-files.json; a record
stands while the files it exercises are unchanged. A flip is one bit of the file or its log, drawn at random;
cuts are ends of the file and of its log at every 512 bytes. After each the queue is opened, its whole file
checked, every key submitted again and all that is ready run: no readable row lost, none done twice,
integrity clean.
"""

from __future__ import annotations

import argparse
import logging
import os
import random
import secrets
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.chaos.evidence import load_evidence, queue_files, save_evidence
from tests.queue.broken_queue import Whole, a_whole_queue, broken_copy, check_after_cut, check_what_comes_back

NAME = "broken-files"
STEP_BYTES = 512
FAST = "/dev/shm" if Path("/dev/shm").is_dir() else None
PARTS = ("", "-wal")


def main() -> int:
    """Run the counts asked for; 1 when anything was lost or done twice."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--flips", type=int, default=0, help="bits flipped in the file, and as many in its log"
    )
    parser.add_argument("--cuts", action="store_true", help="cut file and log at every 512 bytes")
    parser.add_argument("--rounds", type=int, default=4, help="how much is in the queue")
    parser.add_argument("--seed", type=int, default=secrets.randbits(32))
    asked = parser.parse_args()
    logging.disable(logging.CRITICAL)
    command = "python -m tests.chaos.broken_files --flips 500 --cuts"
    record = load_evidence(NAME, command, queue_files())
    faults: list[str] = []
    with tempfile.TemporaryDirectory(dir=FAST) as folder:
        for entry, found in _bouts(Path(folder), asked):
            print(entry, flush=True)
            faults += found
            record = record.with_entry(entry["cases"], entry)
    for fault in faults:
        print(fault, file=sys.stderr)
    if not faults:
        save_evidence(record)
    return 1 if faults else 0


def _bouts(folder: Path, asked: argparse.Namespace) -> Iterator[tuple[dict[str, Any], list[str]]]:
    for is_in_log in (True, False):
        whole = a_whole_queue(folder / f"queue-{is_in_log}", rounds=asked.rounds, is_in_log=is_in_log)
        where = "half in its log" if is_in_log else "all in the file"
        for part in PARTS if is_in_log else ("",):
            told = {"queue": where, "broken": "log" if part else "file", "tasks": len(whole.states)}
            if asked.flips:
                cases = _flips(whole, folder / "copy", part, asked.flips, asked.seed)
                yield _run({**told, "by": "one flipped bit", "seed": asked.seed}, cases)
            if asked.cuts:
                yield _run(
                    {**told, "by": f"a cut at every {STEP_BYTES} bytes"}, _cuts(whole, folder / "copy", part)
                )


Case = tuple[str, Callable[[], str]]


def _flips(whole: Whole, folder: Path, part: str, count: int, seed: int) -> Iterator[Case]:
    draw = random.Random(seed)
    for _ in range(count):
        path = broken_copy(whole, folder)
        broken = path.with_name(path.name + part)
        data = bytearray(broken.read_bytes())
        offset, bit = draw.randrange(len(data)), draw.randrange(8)
        data[offset] ^= 1 << bit
        broken.write_bytes(data)
        hit = whole.pages_hit(part, offset)
        yield f"bit {bit} of byte {offset}", lambda hit=hit: check_what_comes_back(whole, folder, hit)  # type: ignore[misc]


def _cuts(whole: Whole, folder: Path, part: str) -> Iterator[Case]:
    for cut in range(0, (whole.folder / f"queue.db{part}").stat().st_size, STEP_BYTES):
        path = broken_copy(whole, folder)
        os.truncate(path.with_name(path.name + part), cut)
        yield f"cut at {cut}", lambda cut=cut: check_after_cut(whole, folder, part, cut)  # type: ignore[misc]


def _run(told: dict[str, Any], cases: Iterator[Case]) -> tuple[dict[str, Any], list[str]]:
    """Do every case; return what to record, and what went wrong."""
    began, count, salvaged = time.monotonic(), 0, 0
    faults: list[str] = []
    for name, check in cases:
        count += 1
        try:
            salvaged += bool(check())
        except Exception as error:
            faults.append(f"{told}: {name}: {type(error).__name__}: {error}")
    entry = {**told, "cases": count, "salvaged": salvaged, "faults": len(faults)}
    return {**entry, "seconds": round(time.monotonic() - began, 1)}, faults


if __name__ == "__main__":
    raise SystemExit(main())
