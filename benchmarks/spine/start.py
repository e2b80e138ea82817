"""From starting the agent's process until it says that it is ready for work. Read to some 50 ms."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Iterator

from benchmarks.fleet import LONE
from benchmarks.harness import Baseline, BenchmarkError, Goal, Result, Run, result
from benchmarks.samples import median_of
from skerry.cli.demo.fleet import Fleet
from skerry.client import Client

_TIMEOUT_S = 30.0
_POLL_S = 0.005


def measure(run: Run, fleet: Fleet) -> Iterator[Result]:
    """Restart the agent on the store that the tasks left behind, several times."""
    repeats = run.size(7, 3)
    samples = [_restart(fleet) for _ in range(repeats)]
    yield result(
        "spine.start.ready_s",
        f"agent start until /readyz, median of {repeats}, on a used store",
        statistics.median(samples),
        "s",
        goal=Goal("<=", 2.0),
        baseline=Baseline(what="starting the interpreter alone", value=median_of(repeats, _interpreter_s)),
    )


def _restart(fleet: Fleet) -> float:
    agent = fleet.agents[LONE]
    agent.stop()
    began = time.perf_counter()
    agent.start()
    with Client(socket=agent.socket_path) as client:
        while not client.is_ready():
            if time.perf_counter() - began > _TIMEOUT_S:
                raise BenchmarkError(f"the agent was not ready within {_TIMEOUT_S:g} s")
            time.sleep(_POLL_S)
    return time.perf_counter() - began


def _interpreter_s() -> float:
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", "pass"], check=True)
    return time.perf_counter() - began
