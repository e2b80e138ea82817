"""A node with the agent's own policy core, trial and gate, on a queue of two unequal devices."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from devices.port import Report
from edge_agent.policy_core import HELD, PolicyCore
from edge_agent.policy_trial import PolicyTrial
from policy.baselines.shortest_expected_completion import ShortestExpectedCompletion
from policy.port import Choice, DeviceView, NodeView, Scheduler
from skerry.clock import Instant
from skerry.decision import Decision
from skerry.link.wire import UP_ROWS
from skerry.messages import ActivatePolicy, GateEvidence, PolicyReport, Row
from skerry.node import Device
from skerry.task import CommandSpec, TaskSpec
from task_queue.operations import AppendOutbox, PutMeta

TASK = TaskSpec(spec=CommandSpec(argv=("true",)), deadline_s=1.0)
SPEEDS = (1.0, 4.0)
Rule = Callable[[Sequence[DeviceView], Sequence[float]], int]


class Ruled:
    """A policy made of a rule; stands for the ONNX actor."""

    def __init__(self, name: str, rule: Rule) -> None:
        self.name = f"policy:{name}"
        self._rule = rule

    def choose(self, task: TaskSpec, devices: Sequence[DeviceView], runtime_s: Sequence[float]) -> Choice:
        """Pick what the rule says."""
        scores = tuple(1.0 for _ in devices)
        index = self._rule(devices, runtime_s)
        return Choice(index=index, reason="the rule", scores=scores, expected_s=tuple(runtime_s))


class EdgeNode:
    """One node: takes orders, decides tasks as they arrive, says what its core wants said."""

    def __init__(self, name: str, key: str, policies: dict[str, Ruled | str], seed: int) -> None:
        """policies: file hash → the policy, or why the file is refused here."""
        self.name, self._key, self._policies = name, key, policies
        self.rng = random.Random(seed)
        self.kept: dict[str, Any] = {}
        self.core = PolicyCore(None, key)
        self.trial: PolicyTrial | None = None
        self.fallback: Scheduler = ShortestExpectedCompletion()
        self.now_s = 0.0
        self.number = 0
        self.decided_by: list[str] = []
        self._free_at = [0.0] * len(SPEEDS)
        self._ends: list[tuple[float, str, float]] = []

    def order(self, message: ActivatePolicy) -> None:
        """Take an order as the agent's shell does: fetch, load, begin."""
        before = self.core.gate
        self.core.order(message, seed=self.rng.getrandbits(32))
        if self.core.gate is before:
            return
        self.trial = None
        if self.core.needs_file:
            self._load()

    def restart(self) -> None:
        """A new process, from what the store kept."""
        self.core = PolicyCore(self.kept.get(HELD), self._key)
        self.trial = None
        self.core.started()
        if self.core.needs_file:
            self.said()  # what a load that ends the process must not undo
            self._load()

    def said(self) -> list[PolicyReport | GateEvidence]:
        """Commit what the core wants committed; return the rows of it."""
        rows: list[PolicyReport | GateEvidence] = []
        for number, one in enumerate(self.core.operations()):
            if isinstance(one, PutMeta):
                self.kept[one.name] = msgspec.json.decode(msgspec.json.encode(one.value))
            elif isinstance(one, AppendOutbox):
                row = Row(seq=number + 1, kind=one.kind, body=msgspec.Raw(one.body))
                message = UP_ROWS.read(row).message
                assert isinstance(message, PolicyReport | GateEvidence)
                rows.append(message)
        if self.trial is not None and not self.core.gate.has_candidate:
            self.trial = None
        return rows

    def work(self, tasks: int) -> None:
        """Let so many tasks arrive, be decided and end."""
        for _ in range(tasks):
            self._one()

    def _load(self) -> None:
        manifest = self.core.manifest
        assert manifest is not None
        found = self._policies[manifest.file_hash]
        if isinstance(found, str):
            self.core.refuse(found)
            return
        self.core.loaded()
        if self.core.gate.has_candidate:
            self.trial = PolicyTrial(self.core.gate, found, timer=lambda: 0.0)

    def _one(self) -> None:
        self.number += 1
        self.now_s += self.rng.expovariate(2.5)
        now = Instant("boot", self.now_s)
        while self._ends and self._ends[0][0] <= self.now_s:
            ended_s, task_id, runtime_s = heapq.heappop(self._ends)
            if self.trial is not None:
                report = Report(status="succeeded", runtime_s=runtime_s)
                self.trial.ended(task_id, report, Instant("boot", ended_s))
        runtime_s = [self.rng.lognormvariate(-0.4, 0.5) / speed for speed in SPEEDS]
        node = NodeView(node=self.name, region="r", devices=tuple(map(self._view, range(len(SPEEDS)))))
        task_id = f"t{self.number}"

        def decide_with(scheduler: Scheduler) -> Decision:
            choice = scheduler.choose(TASK, node.devices, runtime_s)
            device = node.devices[choice.index].device.device_id
            return Decision(
                task_id=task_id, decided_by=f"baseline:{scheduler.name}", node=self.name, device=device
            )

        if self.trial is None:
            decision = decide_with(self.fallback)
        else:
            decision = self.trial.decide(task_id, TASK, node, now, self.fallback, decide_with)
        self.decided_by.append(decision.decided_by)
        index = int((decision.device or "d0")[1:])
        self._free_at[index] = max(self.now_s, self._free_at[index]) + runtime_s[index]
        heapq.heappush(self._ends, (self._free_at[index], task_id, runtime_s[index]))

    def _view(self, index: int) -> DeviceView:
        device = Device(
            device_id=f"d{index}", device_class="cpu", name="d", executors=("command",), speed=SPEEDS[index]
        )
        backlog_s = max(0.0, self._free_at[index] - self.now_s)
        return DeviceView(device=device, backlog_s=backlog_s, running=int(backlog_s > 0))
