"""The gate's core: whose turn it is, which outcome is whose, and what follows. Pure; time is given to it.

Owns one trial's state. Must not know of schedulers, stores or messages: the shell asks `begin`, reports
`decided`, `shadowed`, `failed` and `ended`, and keeps `state` whenever `is_worth_keeping`.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from policy.gate.cells import open_cell
from policy.gate.judging import Verdict, compare, figures_of, judge, judge_weighed
from policy.gate.settings import GateSettings
from policy.gate.state import LIVE, Arm, Block, GateState, Stage, Weighed
from policy.objective import (
    DEFAULT_WEIGHTS,
    NOMINAL_DEADLINE_S,
    ObjectiveWeights,
    Terms,
    cost,
    priority_weight,
)
from skerry.clock import Instant

#: Tasks whose outcome is awaited; beyond, the oldest count as overdue.
AWAITED = 4096
#: Cells that wait for outcomes; beyond, the oldest is compared with what is known.
UNSETTLED = 16


def new_trial(policy: str, settings: GateSettings, seed: int) -> GateState:
    """Return the state in which a candidate begins. seed: of the draws; the same one draws the same cells."""
    reason = "beside the fallback first"
    return GateState(policy=policy, stage=Stage.SHADOW, settings=settings, seed=seed, reason=reason)


class Deal(msgspec.Struct, frozen=True, kw_only=True):
    """What a task asks for: what its outcome is measured by."""

    priority: int = 4
    deadline_s: float | None = None  #: from the decision
    power_w: float = 0.0  #: of the chosen device, where it is known

    @property
    def scale_s(self) -> float:
        """What its completion time is measured in."""
        return max(self.deadline_s, 1e-3) if self.deadline_s is not None else NOMINAL_DEADLINE_S


class _Awaited(msgspec.Struct):
    cell: int
    block: int
    since: Instant
    deal: Deal


class Gate:
    """One candidate's trial on one node. One owner calls it, in the order of events."""

    def __init__(self, state: GateState, weights: ObjectiveWeights = DEFAULT_WEIGHTS) -> None:
        """Go on from a state, whatever process it was made in."""
        self.state = state
        self.weights = weights
        self.is_worth_keeping = False  #: something changed that a restart must not lose
        self._awaited: dict[str, _Awaited] = {}
        self._block_began: Instant | None = None
        self._last_decision: Instant | None = None
        self._is_burning_in = True

    # --- life of a trial ------------------------------------------------------------------------------

    def begin_trial(self, policy: str, settings: GateSettings, seed: int) -> None:
        """Take up a new candidate; whatever was before is forgotten."""
        self.state = new_trial(policy, settings, seed)
        self._awaited.clear()
        self._block_began = self._last_decision = None
        self.is_worth_keeping = True

    def started(self) -> None:
        """The agent has started with this state: a candidate that keeps killing it is rolled back."""
        self.state.starts += 1
        self.is_worth_keeping = True
        if self.has_candidate and self.state.starts > self.state.settings.crashes:
            self.roll_back(f"the agent died {self.state.starts - 1} times with it before a comparison ended")

    def stopped(self) -> None:
        """The agent stops in order."""
        self.state.starts = 0
        self.is_worth_keeping = True

    def roll_back(self, reason: str) -> None:
        """Take the candidate away."""
        if self.has_candidate:
            self._go_to(Verdict(Stage.ROLLED_BACK, reason))

    @property
    def has_candidate(self) -> bool:
        """There is a policy that is asked."""
        return self.state.stage is Stage.SHADOW or self.state.stage in LIVE

    # --- decisions ------------------------------------------------------------------------------------

    def begin(self, now: Instant) -> Arm:
        """Return whose decision the next one is."""
        if self.state.stage not in LIVE:
            return Arm.FALLBACK
        self._count_overdue(now)
        if self.state.stage not in LIVE:  # that settled it
            return Arm.FALLBACK
        block = self._block(now)
        return block.arm if self.state.stage in LIVE else Arm.FALLBACK

    def decided(self, task_id: str, deal: Deal, now: Instant, arm: Arm) -> None:
        """A task got a device by this arm: its outcome is the running block's, unless the block burns in."""
        self.state.decisions[arm] += 1
        before = self._awaited.pop(task_id, None)
        if self.state.stage not in LIVE or not self.state.cells:
            return
        cell = self.state.cells[-1]
        index = cell.running
        block = cell.blocks[index]
        is_counted = not self._burns_in(block, now) and arm is block.arm
        if before is not None and (before.cell, before.block) != (cell.index, index):
            is_counted = False  # decided twice, by two arms perhaps: nobody's
        block.decided += 1
        self._last_decision = now
        if is_counted:
            block.counted += 1
            self._await(task_id, _Awaited(cell.index, index, now, deal))

    def weighed(self, *, agrees: bool, candidate_cost: float, fallback_cost: float) -> None:
        """The candidate has chosen for a task; costs as the fallback expects them for both choices."""
        if not self.has_candidate:
            return
        weighed = self.state.weighed
        weighed.decisions += 1
        self.state.good_answers += 1
        if self.state.good_answers >= self.state.settings.forgiven_after:
            self.state.recent_failures = 0
        self.state.agreed += agrees
        self.state.weighed_in_all += 1
        weighed.candidate_cost += candidate_cost
        weighed.fallback_cost += fallback_cost
        verdict = judge_weighed(self.state)
        if weighed.decisions >= self.state.settings.plausible_decisions:
            self.state.weighed = Weighed()
        if verdict is not None:
            self._go_to(verdict)

    def failed(self, kind: str, detail: str) -> None:
        """The candidate gave no usable answer (error, nan, slow, range): the fallback decided instead."""
        if not self.has_candidate:
            return
        state = self.state
        state.failures[kind] = state.failures.get(kind, 0) + 1
        state.recent_failures, state.good_answers = state.recent_failures + 1, 0
        self.is_worth_keeping = True
        if state.recent_failures >= state.settings.failures:
            self.roll_back(f"{state.recent_failures} failed decisions, the last: {detail}"[:500])

    # --- outcomes -------------------------------------------------------------------------------------

    def ended(
        self,
        task_id: str,
        now: Instant,
        *,
        succeeded: bool,
        is_late: bool | None = None,
        runtime_s: float = 0.0,
    ) -> None:
        """A task ended on its device; a failure counts as a miss at the latest it could have been.

        is_late: whether its deadline has passed, None when only the time since the decision tells.
        """
        awaited = self._awaited.pop(task_id, None)
        if awaited is None:
            return
        latency_s = max(0.0, now.since(awaited.since))
        if is_late is None:
            is_late = awaited.deal.deadline_s is not None and latency_s > awaited.deal.deadline_s
        energy_j = awaited.deal.power_w * runtime_s
        self._credit(awaited, latency_s, missed=is_late or not succeeded, ended=succeeded, energy_j=energy_j)
        self._settle()

    def forget(self, task_id: str) -> None:
        """A task left without an outcome that says anything about the decision (it was cancelled)."""
        if self._awaited.pop(task_id, None) is not None:
            self._settle()

    def evidence(self) -> dict[str, float]:
        """Return the figures that people and the coordinator see."""
        return figures_of(self.state)

    # --- inside ---------------------------------------------------------------------------------------

    def _block(self, now: Instant) -> Block:
        """The running block, the next one when it is over, the first of the next cell after the last."""
        state, terms = self.state, self.state.settings
        if not state.cells or state.cells[-1].stage is not state.stage:
            self._open_cell()
        cell = state.cells[-1]
        index = cell.running
        block = cell.blocks[index]
        if self._block_began is None:
            self._block_began = now
            self._is_burning_in = True
        age_s = now.since(self._block_began)
        is_over = block.counted >= terms.block_decisions or (block.counted and age_s >= terms.block_s)
        if not is_over:
            return block
        self._block_began = now
        last_s = terms.burn_in_s if self._last_decision is None else now.since(self._last_decision)
        self._is_burning_in = last_s < terms.burn_in_s
        if index + 1 == len(cell.blocks):
            self._open_cell()
            self._settle()
            return self._block(now) if state.stage in LIVE else block
        cell.running = index + 1
        return cell.blocks[index + 1]

    def _burns_in(self, block: Block, now: Instant) -> bool:
        terms = self.state.settings
        young = self._block_began is not None and now.since(self._block_began) < terms.burn_in_s
        return self._is_burning_in and block.decided < terms.burn_in_decisions and young

    def _open_cell(self) -> None:
        state = self.state
        state.cells.append(open_cell(state.seed, state.cells_begun, state.stage, state.settings))
        state.cells_begun += 1

    def _await(self, task_id: str, awaited: _Awaited) -> None:
        self._awaited[task_id] = awaited
        if len(self._awaited) > AWAITED:
            self._overdue([next(iter(self._awaited))])

    def _count_overdue(self, now: Instant) -> None:
        factor = self.state.settings.overdue_deadlines
        late = [
            task_id
            for task_id, one in self._awaited.items()
            if now.since(one.since) > factor * one.deal.scale_s
        ]
        self._overdue(late)

    def _overdue(self, task_ids: Iterable[str]) -> None:
        found = [self._awaited.pop(task_id) for task_id in task_ids]
        for awaited in found:
            self._credit(awaited, float("inf"), missed=True, ended=False, energy_j=0.0)
        if found:
            self._settle()

    def _credit(
        self, awaited: _Awaited, latency_s: float, *, missed: bool, ended: bool, energy_j: float
    ) -> None:
        cell = next((cell for cell in self.state.cells if cell.index == awaited.cell), None)
        if cell is None:
            return
        deal, most = awaited.deal, self.state.settings.overdue_deadlines
        relative = min(latency_s / deal.scale_s, most) if ended else most
        violation = priority_weight(deal.priority) * missed
        terms = Terms(useful=0.0, completion=relative, energy=energy_j, violation=violation)
        tally = cell.blocks[awaited.block].tally
        tally.tasks += 1
        tally.missed += missed
        tally.latency += relative
        tally.cost += max(0.0, float(cost(terms, self.weights)))

    def _settle(self) -> None:
        """Compare every finished cell whose outcomes are known; more than a few may not wait."""
        state = self.state
        while len(state.cells) > 1:
            first = state.cells[0]
            waits = any(one.cell == first.index for one in self._awaited.values())
            if waits and len(state.cells) <= UNSETTLED:
                return
            state.cells.pop(0)
            if first.stage is not state.stage:
                continue
            compare(state, first)
            state.starts = min(state.starts, 1)
            self.is_worth_keeping = True
            verdict = judge(state)
            if verdict is not None:
                self._go_to(verdict)

    def _go_to(self, verdict: Verdict) -> None:
        state = self.state
        state.stage, state.reason = verdict.stage, verdict.reason
        state.stage_cells = 0
        state.cells.clear()
        self._awaited.clear()
        self._block_began = None
        self.is_worth_keeping = True
        if verdict.stage is not Stage.ROLLED_BACK:
            state.good = type(state.good)()
