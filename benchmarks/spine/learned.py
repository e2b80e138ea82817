"""What a learned policy weighs in the agent: numpy, onnxruntime and the session, idle and at work.

The shipped policy, signed, pushed and rolled out by the commands that people use. It takes its way through
the gate on real tasks; which device each gets is not measured here.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import psutil

from benchmarks.fleet import BOARD, signing_key
from benchmarks.harness import Baseline, BenchmarkError, Goal, Result, Run, result
from benchmarks.memory import SETTLE_S, peak_mb, resident_mb, steady_mb
from skerry.cli.demo import round_plan
from skerry.cli.demo.fleet import Fleet
from skerry.cli.demo.process import run_skerry
from skerry.cli.demo.round_cloud import Operator
from skerry.client import Client
from skerry.task import CommandSpec, Resources, TaskSpec

_GOAL = Goal("<=", 120.0)
_TASK = TaskSpec(
    spec=CommandSpec(argv=("/bin/true",)),
    kind="benchmark/true",
    deadline_s=5.0,
    resources=Resources(cpu_millicores=100, memory_bytes=64 << 20, accelerator="none"),
)
_AT_ONCE = 40
#: Tasks after which the gate must have left the decisions to the policy; it takes about a hundred.
_MOST_TASKS = 2000
_PATIENCE_S = 60.0


def measure(run: Run, fleet: Fleet) -> Iterator[Result]:
    """Measure a node without a policy, with it before the first decision, and while tasks run through it."""
    agent = fleet.agents[BOARD]
    agent.stop()
    agent.start()
    time.sleep(run.duration_s(SETTLE_S, SETTLE_S))
    without = Baseline(what="the same agent without a policy", value=steady_mb(agent.pid))
    with Client(socket=agent.socket_path) as client:
        _roll_out(fleet, client)
        time.sleep(run.duration_s(SETTLE_S, SETTLE_S))
        yield result(
            "spine.memory.policy_idle_mb",
            "resident memory of an idle agent with a policy (numpy, onnxruntime)",
            steady_mb(agent.pid),
            "MB",
            goal=_GOAL,
            baseline=without,
        )
        tasks, most_mb = _work(client, agent.pid, at_least=run.size(400, 120))
        yield result(
            "spine.memory.policy_busy_mb",
            f"the same agent while it runs {tasks} tasks, at most",
            most_mb,
            "MB",
            goal=_GOAL,
        )
        yield result(
            "spine.memory.policy_peak_mb",
            "the most it ever had, loading the policy included",
            peak_mb(agent.pid),
            "MB",
            goal=_GOAL,
        )


def _roll_out(fleet: Fleet, client: Client) -> None:
    """Give the shipped policy to the node, and return once it is loaded there.  Raises BenchmarkError."""
    config = fleet.data_dir("coordinator") / "coordinator.toml"
    file = fleet.directory / "shipped.onnx"
    run_skerry("policy", "sign", "--key", str(signing_key(fleet.directory)), "--out", str(file))
    operator = Operator(config)
    try:
        if refused := operator.push(file):
            raise BenchmarkError(f"the shipped policy is refused: {refused}")
        version = operator.version_in(file)
        assert version is not None
        gate = round_plan.gate_options(round_plan.GATE)
        operator.start_rollout(version.policy, "--unproven", "--canary", BOARD, *gate)
    finally:
        operator.close()
    deadline = time.monotonic() + _PATIENCE_S
    while not client.policy().is_loaded:
        if time.monotonic() > deadline:
            raise BenchmarkError(f"the policy was not loaded within {_PATIENCE_S:g} s")
        time.sleep(0.05)  # polling another process


def _work(client: Client, pid: int, *, at_least: int) -> tuple[int, float]:
    """Run tasks until the policy decides for itself; return how many, and the most that was resident."""
    process, done, most_mb = psutil.Process(pid), 0, 0.0
    while done < at_least or client.policy().state != "full":
        if done >= _MOST_TASKS:
            status = client.policy()
            raise BenchmarkError(f"after {done} tasks the gate is at {status.state!r}: {status.reason}")
        for task in [client.submit(_TASK) for _ in range(_AT_ONCE)]:
            task.result(_PATIENCE_S)
            most_mb = max(most_mb, resident_mb(process))
        done += _AT_ONCE
    return done, most_mb
