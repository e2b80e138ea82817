"""The gate from event to event: whose turn, whose outcome, and every way out of every stage."""

from __future__ import annotations

import msgspec
import pytest

from policy.gate.core import Deal, Gate
from policy.gate.settings import GateSettings
from policy.gate.state import Arm, GateState, Stage
from skerry.clock import Instant

QUICK = GateSettings(
    shadow_decisions=2, block_decisions=2, burn_in_decisions=1, stage_cells=8, least_cells=2, partial_blocks=2
)
DEAL = Deal(deadline_s=1.0)


class Site:
    """Makes decisions one after the other through a gate; arms take as long as they are told to."""

    def __init__(self, gate: Gate | None = None, settings: GateSettings = QUICK) -> None:
        self.gate = gate or Gate(GateState())
        if gate is None:
            self.gate.begin_trial("v1", settings, seed=3)
        self.now_s = 100.0
        self.number = 0

    @property
    def now(self) -> Instant:
        return Instant("boot", self.now_s)

    def decide(self, **takes_s: float) -> Arm:
        """One decision, and its task's end `takes_s` later."""
        self.now_s += 0.1
        self.number += 1
        arm = self.gate.begin(self.now)
        if self.gate.has_candidate and (arm is Arm.CANDIDATE or self.gate.state.stage is Stage.SHADOW):
            self.gate.weighed(agrees=True, candidate_cost=1.0, fallback_cost=1.0)
        self.gate.decided(f"t{self.number}", DEAL, self.now, arm)
        ended = Instant("boot", self.now_s + takes_s.get(arm.value, 0.1))
        self.gate.ended(f"t{self.number}", ended, succeeded=True)
        return arm

    def until(self, *stages: Stage, most: int = 2000, **takes_s: float) -> None:
        """Decide until one of the stages is reached."""
        while self.gate.state.stage not in stages and self.number < most:
            self.decide(**takes_s)


def test_a_better_candidate_goes_through_every_share_to_full() -> None:
    site = Site()
    seen: list[Stage] = []
    while site.gate.state.stage is not Stage.FULL:
        site.decide(candidate=0.1, fallback=0.5)
        if site.gate.state.stage not in seen:
            seen.append(site.gate.state.stage)

    assert seen == [Stage.SHADOW, Stage.CANARY, Stage.PARTIAL, Stage.FULL]
    assert "not worse" in site.gate.state.reason


def test_a_worse_candidate_is_rolled_back_with_its_figures() -> None:
    site = Site()
    site.until(Stage.ROLLED_BACK, Stage.FULL, candidate=2.0, fallback=0.2)

    assert site.gate.state.stage is Stage.ROLLED_BACK
    assert "worse than the fallback" in site.gate.state.reason
    evidence = site.gate.evidence()
    assert evidence["candidate_missed"] == 1.0
    assert evidence["harm_e_value"] >= 50
    assert site.decide() is Arm.FALLBACK


def test_a_candidate_that_turns_bad_under_full_is_taken_away() -> None:
    site = Site()
    site.until(Stage.FULL, candidate=0.1, fallback=0.3)
    site.until(Stage.ROLLED_BACK, most=site.number + 1000, candidate=1.5, fallback=0.3)

    assert site.gate.state.stage is Stage.ROLLED_BACK


@pytest.mark.parametrize("stage", [Stage.SHADOW, Stage.CANARY, Stage.PARTIAL, Stage.FULL])
def test_failed_decisions_end_the_trial_in_every_stage(stage: Stage) -> None:
    site = Site()
    site.until(stage, candidate=0.1, fallback=0.5)
    for _ in range(QUICK.failures):
        assert site.gate.has_candidate
        site.gate.failed("nan", "a score is not a number")

    assert site.gate.state.stage is Stage.ROLLED_BACK
    assert site.gate.state.reason == "3 failed decisions, the last: a score is not a number"


def test_choices_that_look_absurd_never_get_a_share() -> None:
    gate = Gate(GateState())
    gate.begin_trial("v1", GateSettings(), seed=1)
    for number in range(20):
        assert gate.begin(Instant("boot", float(number))) is Arm.FALLBACK
        gate.weighed(agrees=False, candidate_cost=1.2, fallback_cost=0.1)
        gate.decided(f"t{number}", DEAL, Instant("boot", float(number)), Arm.FALLBACK)

    assert gate.state.stage is Stage.ROLLED_BACK
    assert "not plausible" in gate.state.reason
    assert gate.state.decisions[Arm.CANDIDATE] == 0


def test_the_first_decisions_after_a_change_of_arms_do_not_count() -> None:
    site = Site()
    site.until(Stage.CANARY)
    for _ in range(30):
        site.decide()
    settled = [block for cell in site.gate.state.cells for block in cell.blocks if block.decided]

    assert all(block.counted == max(0, block.decided - 1) for block in settled)


def test_slow_arrivals_need_no_burn_in() -> None:
    site = Site()
    site.until(Stage.CANARY)
    site.decide()
    for _ in range(4):
        site.now_s += 3600
        site.decide()
    (cell,) = site.gate.state.cells

    assert [block.counted for block in cell.blocks if block.decided][1:] != []
    assert all(block.counted == block.decided for block in cell.blocks[1:] if block.decided)


def test_the_arms_of_a_cell_are_the_same_after_a_restart() -> None:
    whole, cut = Site(), Site()
    for site in (whole, cut):
        site.until(Stage.CANARY)
    for _ in range(40):
        whole.decide()
    for _ in range(17):
        cut.decide()
    kept = msgspec.json.encode(cut.gate.state)
    again = Site(Gate(msgspec.json.decode(kept, type=GateState)))
    again.now_s, again.number = cut.now_s, cut.number
    for _ in range(23):
        again.decide()

    def draws(site: Site) -> dict[int, int]:
        return {cell.index: cell.odd for cell in site.gate.state.cells}

    common = draws(whole).keys() & draws(again).keys()
    assert common
    assert all(draws(whole)[index] == draws(again)[index] for index in common)


def test_a_candidate_that_kills_the_agent_again_and_again_is_rolled_back() -> None:
    state = Site().gate.state
    for _ in range(QUICK.crashes + 1):
        gate = Gate(msgspec.json.decode(msgspec.json.encode(state), type=GateState))
        gate.started()
        state = gate.state

    assert state.stage is Stage.ROLLED_BACK
    assert "died 3 times" in state.reason


def test_orderly_stops_are_no_crashes() -> None:
    gate = Site().gate
    for _ in range(20):
        gate.started()
        gate.stopped()

    assert gate.state.stage is Stage.SHADOW


def test_tasks_that_never_end_are_counted_as_missed() -> None:
    site = Site()
    site.until(Stage.CANARY)
    while site.gate.state.stage is Stage.CANARY and site.number < 500:
        site.now_s += 0.1
        site.number += 1
        arm = site.gate.begin(site.now)
        site.gate.decided(f"t{site.number}", DEAL, site.now, arm)
        if arm is Arm.FALLBACK:
            site.gate.ended(f"t{site.number}", site.now, succeeded=True)

    assert site.gate.state.stage is Stage.ROLLED_BACK
    assert site.gate.evidence()["candidate_missed"] == 1.0


def test_a_task_that_was_decided_twice_by_two_blocks_is_nobodys() -> None:
    site = Site()
    site.until(Stage.CANARY)
    gate = site.gate
    moments = [Instant("boot", site.now_s + 0.1 * i) for i in range(1, 9)]
    for moment in moments:
        arm = gate.begin(moment)
        gate.decided("same", DEAL, moment, arm)
    before = sum(block.tally.tasks for cell in gate.state.cells for block in cell.blocks)
    blocks = [block for cell in gate.state.cells for block in cell.blocks if block.decided]

    assert len(blocks) >= 2
    assert before == 0


def test_a_cancelled_task_says_nothing_and_holds_up_nothing() -> None:
    site = Site()
    site.until(Stage.CANARY)
    for _ in range(100):
        site.now_s += 0.1
        site.number += 1
        arm = site.gate.begin(site.now)
        site.gate.decided(f"t{site.number}", DEAL, site.now, arm)
        site.gate.forget(f"t{site.number}")

    assert len(site.gate.state.cells) == 1
    assert site.gate.state.arms[Arm.CANDIDATE].tasks == 0


def test_the_state_stays_far_below_what_the_store_keeps_under_one_name() -> None:
    site = Site(settings=GateSettings(canary_blocks=64, stage_cells=10_000))
    site.until(Stage.CANARY)
    for number in range(3000):  # nothing ever ends
        site.now_s += 0.01
        arm = site.gate.begin(site.now)
        site.gate.decided(f"n{number}", Deal(deadline_s=None), site.now, arm)

    assert len(msgspec.json.encode(site.gate.state)) < 60_000


def test_failures_far_apart_are_forgiven() -> None:
    site = Site(settings=GateSettings(shadow_decisions=10_000, forgiven_after=50))
    for _ in range(10):
        site.gate.failed("slow", "a decision took 60.0 ms, 50 are allowed")
        for _ in range(50):
            site.decide()

    assert site.gate.state.stage is Stage.SHADOW
    assert site.gate.state.failures == {"slow": 10}


def test_a_difference_that_nobody_would_notice_is_none() -> None:
    site = Site()
    site.until(Stage.ROLLED_BACK, Stage.FULL, candidate=0.0018, fallback=0.0004)
    site.until(Stage.ROLLED_BACK, most=site.number + 500, candidate=0.0018, fallback=0.0004)

    assert site.gate.state.stage is Stage.FULL
