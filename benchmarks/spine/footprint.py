"""What the agent and its children weigh: resident memory, children apart."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Iterator

import psutil

from benchmarks.fleet import LONE
from benchmarks.harness import Baseline, BenchmarkError, Goal, Result, Run, result
from skerry.cli.demo.fleet import Fleet

_MB = 1e6
_SETTLE_S = 2.0  # heartbeats and first state have gone out; what is left is what an idle node costs
#: What an agent cannot do without, imported and nothing more.
_BARE = (
    "import aiohttp.web, apsw, msgspec, paho.mqtt.client, cryptography.hazmat.primitives.asymmetric.ed25519"
)
_SHOW = "import psutil; print(psutil.Process().memory_info().rss)"


def idle(run: Run, fleet: Fleet) -> Iterator[Result]:
    """Measure the agent before its first task."""
    time.sleep(_SETTLE_S)
    yield result(
        "spine.memory.agent_mb",
        "resident memory of an idle agent, rules loaded",
        _agent_mb(fleet),
        "MB",
        goal=Goal("<=", 70.0),
        baseline=Baseline(what="an interpreter with its libraries imported", value=_bare_mb()),
    )


def loaded(run: Run, fleet: Fleet) -> Iterator[Result]:
    """Measure the agent and its child after inferences, the model still loaded."""
    yield result("spine.memory.agent_after_mb", "the same agent after the tasks", _agent_mb(fleet), "MB")
    children = _children_mb(fleet.agents[LONE].pid)
    if not children:
        raise BenchmarkError("the agent has no executor child after an inference")
    yield result(
        "spine.memory.child_mb",
        "resident memory of a child with a loaded model (the largest one)",
        max(children),
        "MB",
        goal=Goal("<=", 120.0),
    )
    yield result("spine.memory.children", "executor children after the tasks", len(children), "processes")


def _agent_mb(fleet: Fleet) -> float:
    process = psutil.Process(fleet.agents[LONE].pid)
    return statistics.median(float(process.memory_info().rss) for _ in range(5)) / _MB


def _children_mb(pid: int) -> list[float]:
    sizes = []
    for child in psutil.Process(pid).children(recursive=True):
        try:
            sizes.append(child.memory_info().rss / _MB)
        except psutil.NoSuchProcess:
            continue  # it ended between the two looks
    return sizes


def _bare_mb() -> float:
    done = subprocess.run(
        [sys.executable, "-c", f"{_BARE}; {_SHOW}"], capture_output=True, text=True, check=True
    )
    return int(done.stdout) / _MB
