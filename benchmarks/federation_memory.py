"""What taking part in rounds weighs on a node: resident memory of agent and training child apart.

A real fleet, two agents with the same emulated board, of which one takes part. MB are decimal. Owns how it is
measured; knows nothing of how rounds are carried.
"""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import psutil

from benchmarks.harness import Baseline, BenchmarkError, Goal, Result, Run, result
from benchmarks.memory import SETTLE_S, resident_mb, steady_mb
from skerry.cli.demo.brokers import start_broker
from skerry.cli.demo.fleet import Fleet, NodePlan
from skerry.cli.demo.round_cloud import Operator
from skerry.client import Client

_PLAIN, _TRAINS = "plain", "trains"
_BOARDS = ("hailo-8l",)
_TRAINING: dict[str, object] = {"training.enabled": True, "training.patience_s": 0.0}
PLANS = (
    NodePlan(name=_PLAIN, region="north", boards=_BOARDS),
    NodePlan(name=_TRAINS, region="north", boards=_BOARDS, settings=_TRAINING),
)
#: The coordinator's judgement of what ppo makes is not measured: as little of it as can be.
_COORDINATOR = {"policies.scenarios": 4, "policies.devices": "8", "federation.scenarios": 4}
_CHILD = "federation.edge_child"
_LOOK_S = 0.01  # the null child lives about a second
_PATIENCE_S = 120.0
_ARRIVALS = 80  #: what ppo needs by default to train
_TASK = {
    "spec": {"executor": "command", "argv": ["true"]},
    "resources": {"accelerator": "none", "cpu_millicores": 100, "memory_bytes": 1 << 26},
}


class Most(msgspec.Struct, frozen=True, kw_only=True):
    """The most that was seen while a child trained, MB."""

    agent_mb: float
    child_mb: float


def measure(run: Run) -> Iterator[Result]:
    """Measure the idle agents, then the one that takes part while its child trains: null, then ppo."""
    plans = PLANS if not run.quick else tuple(plan for plan in PLANS if plan.name == _TRAINS)
    with (
        tempfile.TemporaryDirectory(prefix="skerry-bench-") as directory,
        _fleet(Path(directory), plans) as fleet,
    ):
        yield _idle(fleet)
        found = [_train(fleet, "null") for _ in range(run.size(3, 1))]
        agent, child = max(one.agent_mb for one in found), max(one.child_mb for one in found)
        yield result(
            "federation.rss.agent_training_mb",
            "the same agent while its null child trains, at most",
            agent,
            "MB",
        )
        yield result(
            "federation.rss.child_null_mb", "resident memory of the null child, at most", child, "MB"
        )
        if run.quick:
            run.leave_out("memory without training, and of the child that trains the policy (ppo)")
        else:
            yield from _ppo(fleet)


@contextlib.contextmanager
def _fleet(directory: Path, plans: tuple[NodePlan, ...]) -> Iterator[Fleet]:
    broker = start_broker(directory / "broker")
    try:
        with Fleet(directory, broker, plans, directory / "witness.txt", coordinator=_COORDINATOR) as fleet:
            fleet.start()
            yield fleet
    finally:
        broker.stop()


def _idle(fleet: Fleet) -> Result:
    """Measure before any task, the agents started a second time: by then their bytecode is on disk."""
    for agent in fleet.agents.values():
        agent.stop()
        agent.start()
    time.sleep(SETTLE_S)
    plain = [steady_mb(agent.pid) for name, agent in fleet.agents.items() if name == _PLAIN]
    return result(
        "federation.rss.agent_idle_mb",
        "resident memory of an idle agent that takes part in rounds",
        steady_mb(fleet.agents[_TRAINS].pid),
        "MB",
        goal=Goal("<=", 70.0),
        baseline=Baseline(what="the same agent with training off", value=plain[0]) if plain else None,
    )


def _ppo(fleet: Fleet) -> Iterator[Result]:
    with Client(socket=fleet.data_dir(_TRAINS) / "agent.sock") as client:
        for task in [client.submit({**_TASK, "kind": f"k{n % 3}"}) for n in range(_ARRIVALS)]:
            task.result(_PATIENCE_S)
    before = Baseline(what="before, its tasks done", value=steady_mb(fleet.agents[_TRAINS].pid))
    most = _train(fleet, "ppo")
    yield result(
        "federation.rss.agent_training_ppo_mb",
        f"the same agent after {_ARRIVALS} tasks while its ppo child trains, at most",
        most.agent_mb,
        "MB",
        baseline=before,
    )
    yield result(
        "federation.rss.child_ppo_mb", "resident memory of the ppo child, at most", most.child_mb, "MB"
    )


def _train(fleet: Fleet, trainer: str) -> Most:
    """Make one version of a run, and look at both processes until the child is gone."""
    operator = Operator(fleet.data_dir("coordinator") / "coordinator.toml")
    try:
        name = operator.start_run("--trainer", trainer, "--rounds", "1", "--quorum", "1")
        most = _watch(fleet.agents[_TRAINS].pid)
        _check(operator, name)
    finally:
        operator.close()
    return most


def _watch(agent_pid: int) -> Most:
    agent = psutil.Process(agent_pid)
    child = _child(agent)
    agent_mb, child_mb = [resident_mb(agent)], [0.0]
    with contextlib.suppress(psutil.NoSuchProcess):
        while size := resident_mb(child):  # 0: it has ended and is not reaped yet
            child_mb.append(size)
            agent_mb.append(resident_mb(agent))
            time.sleep(_LOOK_S)  # sampling another process: nothing here could be waited on
    return Most(agent_mb=max(agent_mb), child_mb=max(child_mb))


def _child(agent: psutil.Process) -> psutil.Process:
    deadline = time.monotonic() + _PATIENCE_S
    while time.monotonic() < deadline:
        for process in agent.children():
            with contextlib.suppress(psutil.NoSuchProcess):
                if _CHILD in process.cmdline():
                    return process
        time.sleep(_LOOK_S)  # sampling another process: nothing here could be waited on
    raise BenchmarkError(f"no training child was seen within {_PATIENCE_S:g} s")


def _check(operator: Operator, name: str) -> None:
    """Raise BenchmarkError unless the child's reply was accepted: one that failed early weighs too little."""
    deadline = time.monotonic() + _PATIENCE_S
    while (view := operator.run(name)) is None or not view.has_ended:
        if time.monotonic() > deadline:
            raise BenchmarkError(f"run {name} did not end within {_PATIENCE_S:g} s")
        time.sleep(0.1)  # polling another process
    if [one.state for one in view.participants] != ["accepted"]:
        raise BenchmarkError(f"run {name} is {view.state}: {view.reason or view.refused}")
