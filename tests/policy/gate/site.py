"""A small site on a virtual clock: bursty arrivals, unequal devices, real schedulers, the gate in between."""

from __future__ import annotations

import heapq
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from policy.baselines.shortest_expected_completion import ShortestExpectedCompletion
from policy.gate.core import Deal, Gate
from policy.gate.settings import GateSettings
from policy.gate.state import Arm, GateState, Stage
from policy.objective import DEFAULT_WEIGHTS, Terms, cost, priority_weight
from policy.port import Choice, DeviceView, Scheduler
from skerry.clock import Instant
from skerry.node import Device
from skerry.task import CommandSpec, TaskSpec

BOOT = "boot"
SPEEDS = (1.0, 1.0, 4.0, 6.0, 10.0)
TASK = TaskSpec(spec=CommandSpec(argv=("true",)), deadline_s=1.0)


class Pick:
    """A candidate policy from a rule over the views."""

    name = "policy:test"

    def __init__(self, rule: Callable[[Sequence[DeviceView], Sequence[float]], int]) -> None:
        """rule: (views, expected run times) → index."""
        self.rule = rule

    def choose(self, task: TaskSpec, devices: Sequence[DeviceView], runtime_s: Sequence[float]) -> Choice:
        """Pick what the rule says."""
        expected_s = ShortestExpectedCompletion().choose(task, devices, runtime_s).expected_s
        scores = tuple(50.0 for _ in devices)
        return Choice(index=self.rule(devices, runtime_s), reason="", scores=scores, expected_s=expected_s)


@dataclass
class Result:
    """How a run went."""

    gate: Gate
    decisions: int = 0  #: until the verdict, all arms
    candidate_decisions: int = 0
    cost: float = 0.0
    stages: list[Stage] = field(default_factory=list)


def play(
    candidate: Scheduler,
    seed: int,
    *,
    fallback: Scheduler | None = None,
    settings: GateSettings | None = None,
    limit: int = 6000,
    until: frozenset[Stage] = frozenset({Stage.ROLLED_BACK, Stage.FULL}),
    load: float = 0.6,
) -> Result:
    """Run arrivals through the gate until it reaches one of the stages or the limit of decisions."""
    rng = random.Random(seed)
    fallback = fallback or ShortestExpectedCompletion()
    gate = Gate(GateState())
    gate.begin_trial("policy", settings or GateSettings(), seed)
    result = Result(gate)
    free_at = [0.0] * len(SPEEDS)
    waiting: list[list[float]] = [[] for _ in SPEEDS]
    ends: list[tuple[float, str]] = []
    devices = [
        Device(device_id=f"d{i}", device_class="cpu", name="d", executors=("command",), speed=speed)
        for i, speed in enumerate(SPEEDS)
    ]
    now, rate, left = 0.0, 1.0, 0
    for number in range(limit):
        if left == 0:  # a stretch of calm or of burst
            rate = load * sum(SPEEDS) * rng.choice((0.5, 1.0, 1.7))
            left = rng.randrange(10, 40)
        left -= 1
        now += rng.expovariate(rate)
        while ends and ends[0][0] <= now:
            ended_at, task_id = heapq.heappop(ends)
            gate.ended(task_id, Instant(BOOT, ended_at), succeeded=True)
        stage = gate.state.stage
        if not result.stages or result.stages[-1] is not stage:
            result.stages.append(stage)
        if stage in until:
            break
        size = rng.lognormvariate(-0.3, 0.6)
        noise = rng.lognormvariate(0.0, 0.15)
        deadline_s = rng.choice((0.4, 1.0, 3.0))
        runtime_s = [size / speed for speed in SPEEDS]
        views = []
        for i, device in enumerate(devices):
            waiting[i] = [end for end in waiting[i] if end > now]
            views.append(
                DeviceView(
                    device=device,
                    backlog_s=max(0.0, free_at[i] - now),
                    running=min(1, len(waiting[i])),
                    queued=max(0, len(waiting[i]) - 1),
                )
            )
        moment = Instant(BOOT, now)
        deal = Deal(deadline_s=deadline_s)
        arm = gate.begin(moment)
        safe = fallback.choose(TASK, views, runtime_s)
        choice = safe
        if gate.has_candidate and (arm is Arm.CANDIDATE or stage is Stage.SHADOW):
            proposal = candidate.choose(TASK, views, runtime_s)
            if not all(map(math.isfinite, proposal.scores)):
                gate.failed("nan", "a score is not a number")
                arm = Arm.FALLBACK
            else:
                expected = safe.expected_s
                gate.weighed(
                    agrees=proposal.index == safe.index,
                    candidate_cost=expected_cost(expected[proposal.index], deal),
                    fallback_cost=expected_cost(expected[safe.index], deal),
                )
                choice = proposal if arm is Arm.CANDIDATE else safe
        task_id = f"t{number}"
        gate.decided(task_id, deal, moment, arm)
        result.decisions += 1
        result.candidate_decisions += arm is Arm.CANDIDATE
        i = choice.index
        free_at[i] = max(now, free_at[i]) + runtime_s[i] * noise
        waiting[i].append(free_at[i])
        latency_s = free_at[i] - now
        result.cost += expected_cost(latency_s, deal)
        heapq.heappush(ends, (free_at[i], task_id))
    return result


def expected_cost(latency_s: float, deal: Deal) -> float:
    """Return the cost of completing after so many seconds."""
    missed = deal.deadline_s is not None and latency_s > deal.deadline_s
    violation = priority_weight(deal.priority) * missed
    terms = Terms(useful=0.0, completion=latency_s / deal.scale_s, energy=0.0, violation=violation)
    return float(cost(terms, DEFAULT_WEIGHTS))
