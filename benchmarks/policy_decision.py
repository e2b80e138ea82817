"""What one local decision with a learned policy costs: filters, rules, features, network; 30 candidates.

Owns the node that is decided on: thirty busy devices with four tasks waiting at each.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from benchmarks.harness import BenchmarkError, Goal, Result, Run, result
from benchmarks.samples import milliseconds
from policy.actor import Actor, Refused, load_actor
from policy.baselines.min_increase import MinIncrease
from policy.decide import decide
from policy.guard.registry import make_guard
from policy.port import DeviceView, NodeView, Offer, Reserved, Scheduler
from policy.profile import RuntimeProfile
from policy.shipped import SHIPPED_FILE
from skerry.clock import Instant
from skerry.node import Device, DeviceClass
from skerry.task import OnnxSpec, TaskSpec

CANDIDATES = 30
WAITING = 4
CLASSES: tuple[DeviceClass, ...] = ("cpu", "gpu", "npu", "tpu")
MODEL = f"sha256:{'0' * 64}"
TASK = TaskSpec(spec=OnnxSpec(model=MODEL, inputs={}), kind="detect", deadline_s=0.5)


def shipped_policy() -> Actor:
    """Return the policy that ships.  Raises BenchmarkError when it is refused."""
    actor = load_actor(SHIPPED_FILE)
    if isinstance(actor, Refused):
        raise BenchmarkError(f"the shipped policy is refused: {actor.reason}")
    return actor


def measure_decisions(run: Run) -> Iterator[Result]:
    """Yield the time of a whole decision, with the policy and with the fallback, and of the network alone."""
    actor = shipped_policy()
    count = run.size(2000, 200)
    run.say(f"{count} whole decisions with {CANDIDATES} candidates")
    view = _node()
    learned = _cpu_s(lambda: _decide(view, actor), count)
    yield result(
        "policy.decision.p50",
        "whole local decision with the shipped policy, 30 candidates, processor time, p50",
        milliseconds(learned, 0.5),
        "ms",
        goal=Goal("<=", 2.0),
    )
    yield result("policy.decision.p99", "the same, p99", milliseconds(learned, 0.99), "ms")
    rule = _cpu_s(lambda: _decide(view, MinIncrease()), count)
    yield result("policy.decision.rule_p50", "the same with min-increase, p50", milliseconds(rule, 0.5), "ms")
    choose = _cpu_s(lambda: _choose(view, actor), count)
    yield result(
        "policy.decision.actor_p50", "features and network alone, p50", milliseconds(choose, 0.5), "ms"
    )


def _cpu_s(once: Callable[[], object], count: int) -> list[float]:
    """Processor time of this thread: the neighbours' load is not the decision's."""
    for _ in range(20):
        once()
    samples = []
    for _ in range(count):
        begun = time.thread_time()
        once()
        samples.append(time.thread_time() - begun)
    return samples


_GUARD = make_guard("rego")
_PROFILE = RuntimeProfile()


def _decide(view: NodeView, scheduler: Scheduler) -> object:
    decision = decide(
        "0" * 32,
        TASK,
        view,
        guard=_GUARD,
        scheduler=scheduler,
        profile=_PROFILE,
        now=Instant(boot_id="b", uptime_s=1.0),
        wall_s=0.0,
    )
    if decision.device is None:
        raise BenchmarkError(f"nothing was decided: {decision.reason}")
    return decision


def _choose(view: NodeView, actor: Actor) -> object:
    return actor.choose(TASK, view.devices, [0.01 + 0.005 * n for n in range(CANDIDATES)])


def _node() -> NodeView:
    views = tuple(_device(number) for number in range(CANDIDATES))
    return NodeView(node="n1", region="eu", memory_bytes=4 << 30, free_memory_bytes=4 << 30, devices=views)


def _device(number: int) -> DeviceView:
    waiting = tuple(
        Reserved(runtime_s=0.05, weight=2.0, deadline_s=0.5, scale_s=0.5, key=10.0 - place)
        for place in range(WAITING)
    )
    device = Device(
        device_id=f"d-{number}",
        device_class=CLASSES[number % 4],
        name="a board",
        executors=("onnx",),
        power_w=10.0,
    )
    return DeviceView(
        device=device,
        running=1,
        queued=WAITING,
        remaining_s=0.02,
        backlog_s=0.25,
        reserved=waiting,
        is_doomed_last=True,
        offer=Offer(load_s=0.1, energy_j=1.0 + number, key=7.5),
    )
