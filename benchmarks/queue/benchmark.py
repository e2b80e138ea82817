"""The durable queue beside its peers: rates, processor time, bytes, at sizes up to 72 hours of backlog.

Every measurement runs in a process of its own, systems interleaved, all on one disk.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version

from benchmarks.harness import BenchmarkError, Result, Run
from benchmarks.queue.backlog import PACKAGES
from benchmarks.queue.judged import results
from benchmarks.queue.plan import Plan, cache_directory
from benchmarks.queue.runs import Runs


def measure(run: Run) -> Iterator[Result]:
    """Measure all sessions, then yield what they come to."""
    lacking = [name for name in PACKAGES.values() if not _is_installed(name)]
    if lacking:
        raise BenchmarkError(
            f"queues to compare with are not here ({', '.join(lacking)}): `make bench-queue` installs them"
        )
    runs = Runs(cache_directory())
    plan = Plan(run, runs)
    measured = plan.perform()
    yield from results(measured, plan.sizes)
    runs.forget()
    if run.quick:
        run.leave_out("sizes above 10,000 rows, peers above 1,000, the raw disk but for the agent's own path")
        run.leave_out("submits on a node without a coordinator")
    if measured.absent:
        raise BenchmarkError("; ".join(f"{name}: {why}" for name, why in measured.absent.items()))


def _is_installed(package: str) -> bool:
    try:
        return bool(version(package))
    except PackageNotFoundError:
        return False
