"""Decisions while a policy is on trial: whose turn it is, what both would choose, the way back when it fails.

Owns nothing durable: the gate does. Must not know where the policy came from or who hears of its figures.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec

from devices.port import SAYS_NOTHING, Report
from policy.device_plan import energies_of
from policy.gate.core import Deal, Gate
from policy.gate.state import Arm, Stage
from policy.objective import DEFAULT_WEIGHTS, ObjectiveWeights, Terms, cost, priority_weight
from policy.port import Choice, DeviceView, NodeView, Scheduler
from skerry.clock import Instant
from skerry.decision import Decision
from skerry.errors import PolicyError
from skerry.task import TaskSpec

DecideWith = Callable[[Scheduler], Decision]


class Failure(NamedTuple):
    """Why a candidate's answer is not taken."""

    kind: str
    detail: str


class PolicyTrial:
    """One candidate beside the fallback, under a gate."""

    def __init__(
        self,
        gate: Gate,
        candidate: Scheduler,
        timer: Callable[[], float],
        weights: ObjectiveWeights = DEFAULT_WEIGHTS,
    ) -> None:
        """timer: seconds of a clock that is fit to measure one decision."""
        self.gate = gate
        self.candidate = candidate
        self._timer = timer
        self._weights = weights

    def decide(
        self,
        task_id: str,
        task: TaskSpec,
        node: NodeView,
        now: Instant,
        fallback: Scheduler,
        decide_with: DecideWith,
    ) -> Decision:
        """Return the decision of whoever's turn it is; a candidate that fails decides nothing."""
        gate = self.gate
        arm = gate.begin(now)
        stage = gate.state.stage
        is_asked = stage is Stage.SHADOW or arm is Arm.CANDIDATE
        if not is_asked:
            decision = decide_with(fallback)
        else:
            slow_ms, leads = gate.state.settings.slow_ms, arm is Arm.CANDIDATE
            both = Both(
                self.candidate,
                fallback,
                leads=leads,
                slow_ms=slow_ms,
                timer=self._timer,
                weights=self._weights,
            )
            decision = decide_with(both)
            arm, decision = self._heard(both, arm, decision)
        if decision.device is not None:
            power_w = power_of(node.devices, decision.device)
            deal = Deal(priority=task.priority, deadline_s=task.deadline_s, power_w=power_w)
            gate.decided(task_id, deal, now, arm)
        return msgspec.structs.replace(decision, gate_state=stage.value)

    def ended(self, task_id: str, report: Report, now: Instant, *, is_late: bool | None = None) -> None:
        """A task's attempt has ended. is_late: after its deadline, which counts from acceptance."""
        if report.status in SAYS_NOTHING:
            self.gate.forget(task_id)
        else:
            succeeded = report.status == "succeeded"
            self.gate.ended(task_id, now, succeeded=succeeded, is_late=is_late, runtime_s=report.runtime_s)

    def _heard(self, both: Both, arm: Arm, decision: Decision) -> tuple[Arm, Decision]:
        if both.failure is not None:
            self.gate.failed(*both.failure)
            return Arm.FALLBACK, decision
        if both.weighed is None:  # nothing was allowed: nobody was asked
            return arm, decision
        self.gate.weighed(**both.weighed._asdict())
        if both.leads and decision.device is not None:
            decision = msgspec.structs.replace(decision, decided_by=self.candidate.name)
        return arm, decision


class Weighed(NamedTuple):
    """Both choices for one task as the fallback expects them to turn out."""

    agrees: bool
    candidate_cost: float
    fallback_cost: float


class Both:
    """A scheduler that asks candidate and fallback. The candidate's word counts only when it leads."""

    def __init__(
        self,
        candidate: Scheduler,
        fallback: Scheduler,
        *,
        leads: bool,
        slow_ms: float,
        timer: Callable[[], float],
        weights: ObjectiveWeights,
    ) -> None:
        """slow_ms: an answer that took longer is not taken."""
        self._candidate, self._fallback = candidate, fallback
        self._slow_ms, self._timer, self._weights = slow_ms, timer, weights
        self.leads = leads
        self.failure: Failure | None = None
        self.weighed: Weighed | None = None

    @property
    def name(self) -> str:
        """The fallback's: it stands in whenever the candidate fails."""
        return self._fallback.name

    def choose(self, task: TaskSpec, devices: Sequence[DeviceView], runtime_s: Sequence[float]) -> Choice:
        """Ask both; a candidate that has failed once in this decision is not asked again."""
        safe = self._fallback.choose(task, devices, runtime_s)
        if self.failure is not None:
            return safe
        proposal = self._ask(task, devices, runtime_s)
        if isinstance(proposal, Failure):
            self.failure = proposal
            return safe
        energy_j = energies_of(devices, runtime_s)
        costs = [self._expected(task, energy_j[i], safe.expected_s[i]) for i in (proposal.index, safe.index)]
        self.weighed = Weighed(proposal.index == safe.index, *costs)
        return proposal if self.leads else safe

    def _ask(
        self, task: TaskSpec, devices: Sequence[DeviceView], runtime_s: Sequence[float]
    ) -> Choice | Failure:
        begun = self._timer()
        try:
            proposal = self._candidate.choose(task, devices, runtime_s)
        except PolicyError as error:
            return Failure("nan" if "not a number" in str(error) else "error", str(error))
        except Exception as error:  # whatever a policy's runtime raises, the task is decided without it
            return Failure("error", f"{type(error).__name__}: {error}"[:300])
        took_ms = 1e3 * (self._timer() - begun)
        return usable(proposal, len(devices), took_ms, self._slow_ms)

    def _expected(self, task: TaskSpec, energy_j: float, expected_s: float) -> float:
        deal = Deal(priority=task.priority, deadline_s=task.deadline_s)
        is_late = deal.deadline_s is not None and expected_s > deal.deadline_s
        terms = Terms(
            useful=0.0,
            completion=expected_s / deal.scale_s,
            energy=energy_j,
            violation=priority_weight(deal.priority) * is_late,
        )
        return max(0.0, float(cost(terms, self._weights)))


def power_of(views: Sequence[DeviceView], device_id: str) -> float:
    """Return a device's power, W; 0 for all where one's is unknown, since that one would look free."""
    powers = {view.device.device_id: view.device.power_w for view in views}
    return 0.0 if None in powers.values() else powers.get(device_id) or 0.0


def usable(proposal: Choice, candidates: int, took_ms: float, slow_ms: float) -> Choice | Failure:
    """Decide whether a proposal can be taken at all."""
    if not 0 <= proposal.index < candidates or len(proposal.scores) != candidates:
        return Failure("range", f"it chose number {proposal.index} of {candidates} candidates")
    if not all(map(math.isfinite, proposal.scores)):
        return Failure("nan", "a score is not a number")
    if took_ms > slow_ms:
        return Failure("slow", f"a decision took {took_ms:.1f} ms, {slow_ms:g} are allowed")
    return proposal
