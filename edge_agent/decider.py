"""The core's port to the policy layer, filled: filters, rules, scheduler and run times make a ruling."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from edge_agent.core.ruling import Ruling
from edge_agent.policy_trial import PolicyTrial
from policy.decide import Obstacle, decide, obstacle_of
from policy.device_plan import model_of, with_loading
from policy.filters import executor_of
from policy.port import DeviceView, Guard, NodeView, Scheduler
from policy.profile import RuntimeProfile
from skerry.clock import Instant
from skerry.decision import Decision
from skerry.ids import TaskId
from skerry.task import TaskSpec


class PolicyDecider:
    """Decides with the guard, scheduler and profile it holds; they may be changed while the agent runs."""

    def __init__(
        self,
        guard: Guard,
        scheduler: Scheduler,
        profile: RuntimeProfile,
        wall_s: Callable[[], float],
    ) -> None:
        """wall_s: stamps decisions for people."""
        self.guard = guard
        self.scheduler = scheduler
        self.profile = profile
        #: (device, executor) pairs out of use now, with the reason.
        self.suspects: Mapping[tuple[str, str], str] = {}
        self.trial: PolicyTrial | None = None  #: of a learned policy, beside the scheduler
        self._wall_s = wall_s

    def __call__(self, task_id: TaskId, task: TaskSpec, node: NodeView, now: Instant) -> Ruling:
        """Return the ruling for this task on this snapshot of the node."""
        node = self._with_loading(task, self._without_suspects(task, node))

        def decide_with(scheduler: Scheduler) -> Decision:
            return decide(
                task_id,
                task,
                node,
                guard=self.guard,
                scheduler=scheduler,
                profile=self.profile,
                now=now,
                wall_s=self._wall_s(),
            )

        if self.trial is None:
            decision = decide_with(self.scheduler)
        else:
            decision = self.trial.decide(task_id, task, node, now, self.scheduler, decide_with)
        chosen = next((v for v in node.devices if v.device.device_id == decision.device), None)
        ruling = Ruling(
            decision=decision,
            device_id=decision.device,
            runtime_s=0.0,
            is_permanent=obstacle_of(decision) is Obstacle.PERMANENT,
        )
        return ruling if chosen is None else self._expecting(ruling, task, chosen)

    def _expecting(self, ruling: Ruling, task: TaskSpec, chosen: DeviceView) -> Ruling:
        return msgspec.structs.replace(
            ruling,
            runtime_s=self.profile.expected_s(task, chosen.device),
            is_measured=self.profile.has_measured(task.kind, chosen.device),
            load_s=chosen.offer.load_s,
        )

    def _with_loading(self, task: TaskSpec, node: NodeView) -> NodeView:
        """Say on each device what loading the task's model takes there."""
        if not (model := model_of(task)):
            return node
        load_s = [self.profile.load_s(model, view.device) for view in node.devices]
        if not any(load_s):
            return node
        return msgspec.structs.replace(node, devices=tuple(with_loading(node.devices, load_s)))

    def _without_suspects(self, task: TaskSpec, node: NodeView) -> NodeView:
        """A device counts as out of use for a task whose executor on it is; other executors go on."""
        if not self.suspects:
            return node
        executor = executor_of(task)
        devices = tuple(self._seen(view, executor) for view in node.devices)
        return msgspec.structs.replace(node, devices=devices)

    def _seen(self, view: DeviceView, executor: str) -> DeviceView:
        reason = self.suspects.get((view.device.device_id, executor))
        if reason is None or not view.device.usable:
            return view
        device = msgspec.structs.replace(view.device, usable=False, reason=reason)
        return msgspec.structs.replace(view, device=device)
