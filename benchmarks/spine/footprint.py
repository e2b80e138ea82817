"""What the agent and its children weigh: resident memory, children apart."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator

import psutil

from benchmarks.fleet import LONE
from benchmarks.harness import Baseline, BenchmarkError, Goal, Result, Run, result
from benchmarks.memory import SETTLE_S, anonymous_mb, resident_mb, steady_mb
from skerry.cli.demo.fleet import Fleet

#: What an agent cannot do without, imported and nothing more.
_BARE = (
    "import aiohttp.web, apsw, msgspec, paho.mqtt.client, cryptography.hazmat.primitives.asymmetric.ed25519"
)
_SHOW = "import psutil; print(psutil.Process().memory_info().rss)"


def idle(run: Run, fleet: Fleet) -> Iterator[Result]:
    """Measure the agent before its first task, started a second time: by then its bytecode is on disk."""
    agent = fleet.agents[LONE]
    agent.stop()
    agent.start()
    time.sleep(run.duration_s(SETTLE_S, SETTLE_S))
    yield result(
        "spine.memory.agent_mb",
        "resident memory of an idle agent, rules loaded",
        steady_mb(agent.pid),
        "MB",
        goal=Goal("<=", 70.0),
        baseline=Baseline(what="an interpreter with its libraries imported", value=_bare_mb()),
    )
    yield result(
        "spine.memory.agent_anonymous_mb",
        "of that, memory with no file behind it",
        anonymous_mb(agent.pid),
        "MB",
    )


def loaded(run: Run, fleet: Fleet) -> Iterator[Result]:
    """Measure the agent and its child after inferences, the model still loaded."""
    pid = fleet.agents[LONE].pid
    yield result("spine.memory.agent_after_mb", "the same agent after the tasks", steady_mb(pid), "MB")
    children = _children_mb(pid)
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


def _children_mb(pid: int) -> list[float]:
    sizes = []
    for child in psutil.Process(pid).children(recursive=True):
        try:
            sizes.append(resident_mb(child))
        except psutil.NoSuchProcess:
            continue  # it ended between the two looks
    return sizes


def _bare_mb() -> float:
    done = subprocess.run(
        [sys.executable, "-c", f"{_BARE}; {_SHOW}"], capture_output=True, text=True, check=True
    )
    return int(done.stdout) / 1e6
