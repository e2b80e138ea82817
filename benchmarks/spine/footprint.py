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

_MIB = 1 << 20
_SETTLE_S = 2.0  # heartbeats and first state have gone out; what is left is what an idle node costs
#: What an agent cannot do without, imported and nothing more.
_BARE = (
    "import aiohttp.web, apsw, msgspec, paho.mqtt.client, cryptography.hazmat.primitives.asymmetric.ed25519"
)
_SHOW = "import psutil; print(psutil.Process().memory_info().rss)"


def idle(run: Run, fleet: Fleet) -> Iterator[Result]:
    """Measure the agent before its first task, started a second time: by then its bytecode is on disk."""
    fleet.agents[LONE].stop()
    fleet.agents[LONE].start()
    time.sleep(_SETTLE_S)
    yield result(
        "spine.memory.agent_mib",
        "resident memory of an idle agent, rules loaded",
        _agent_mib(fleet),
        "MiB",
        goal=Goal("<=", 70.0),
        baseline=Baseline(what="an interpreter with its libraries imported", value=_bare_mib()),
    )


def loaded(run: Run, fleet: Fleet) -> Iterator[Result]:
    """Measure the agent and its child after inferences, the model still loaded."""
    yield result("spine.memory.agent_after_mib", "the same agent after the tasks", _agent_mib(fleet), "MiB")
    children = _children_mib(fleet.agents[LONE].pid)
    if not children:
        raise BenchmarkError("the agent has no executor child after an inference")
    yield result(
        "spine.memory.child_mib",
        "resident memory of a child with a loaded model (the largest one)",
        max(children),
        "MiB",
        goal=Goal("<=", 120.0),
    )
    yield result("spine.memory.children", "executor children after the tasks", len(children), "processes")


def _agent_mib(fleet: Fleet) -> float:
    process = psutil.Process(fleet.agents[LONE].pid)
    return statistics.median(float(process.memory_info().rss) for _ in range(5)) / _MIB


def _children_mib(pid: int) -> list[float]:
    sizes = []
    for child in psutil.Process(pid).children(recursive=True):
        try:
            sizes.append(child.memory_info().rss / _MIB)
        except psutil.NoSuchProcess:
            continue  # it ended between the two looks
    return sizes


def _bare_mib() -> float:
    done = subprocess.run(
        [sys.executable, "-c", f"{_BARE}; {_SHOW}"], capture_output=True, text=True, check=True
    )
    return int(done.stdout) / _MIB
