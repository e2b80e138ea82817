"""What a compared cell means for the candidate: go on, the next share, or away with it. Pure."""

from __future__ import annotations

from typing import NamedTuple

from policy.gate.cells import CHANNELS, harm_scores
from policy.gate.evidence import Bets
from policy.gate.state import NEXT, Arm, Cell, GateState, Stage


class Verdict(NamedTuple):
    """Where a candidate goes, and why in one sentence."""

    stage: Stage
    reason: str


def compare(state: GateState, cell: Cell) -> None:
    """Take a cell whose outcomes are all known into the evidence."""
    for block in cell.blocks:
        state.arms[block.arm].add(block.tally)
    grain = state.settings.indifference
    scores = {channel: harm_scores(cell, channel, grain) for channel in CHANNELS}
    for channel, pair in scores.items():
        if pair is not None:
            for bets, score in zip(_bets(state, channel), pair, strict=True):
                if state.stage is Stage.FULL:
                    bets.restart_below_one()
                bets.bet(score)
    if scores["cost"] is not None:
        state.good.bet(-scores["cost"][0], -state.settings.pass_margin)
        state.stage_cells += 1


def _bets(state: GateState, channel: str) -> list[Bets]:
    return state.harm.setdefault(channel, [Bets(), Bets()])


def harm_evidence(state: GateState) -> float:
    """Return the e-value against "it does no harm": the mean over channels and scores."""
    bets = [one for channel in CHANNELS for one in state.harm.get(channel, ())]
    return sum(one.e_value for one in bets) / len(bets) if bets else 1.0


def excess(state: GateState, channel: str = "cost") -> float:
    """Return how much more a task of the candidate's came to, relative to one of the fallback's."""
    ours, theirs = state.arms[Arm.CANDIDATE], state.arms[Arm.FALLBACK]
    if not ours.tasks or not theirs.tasks:
        return 0.0
    mean = getattr(theirs, channel) / theirs.tasks
    return float((getattr(ours, channel) / ours.tasks - mean) / max(mean, 1e-9))


def _is_costlier(state: GateState, channel: str) -> bool:
    """Whether the difference is one that matters, relative and in itself."""
    ours, theirs = state.arms[Arm.CANDIDATE], state.arms[Arm.FALLBACK]
    if not ours.tasks or not theirs.tasks:
        return False
    extra = getattr(ours, channel) / ours.tasks - getattr(theirs, channel) / theirs.tasks
    return excess(state, channel) > state.settings.tolerance and extra > state.settings.indifference


def judge(state: GateState) -> Verdict | None:
    """Decide from the evidence so far; None: go on as now."""
    terms = state.settings
    evidence = harm_evidence(state)
    alpha = terms.alarm_alpha if state.stage is Stage.FULL else terms.harm_alpha
    is_costlier = any(_is_costlier(state, channel) for channel in CHANNELS)
    if evidence >= 1.0 / alpha and is_costlier:
        return Verdict(Stage.ROLLED_BACK, f"worse than the fallback: {_figures(state)}")
    if state.stage not in NEXT or state.stage_cells < terms.least_cells:
        return None
    if state.good.e_value >= 1.0 / terms.pass_alpha and evidence < terms.lean_evidence:
        return Verdict(NEXT[state.stage], f"not worse than the fallback: {_figures(state)}")
    if state.stage_cells < terms.stage_cells:
        return None
    if evidence >= terms.lean_evidence and is_costlier:
        why = f"after {state.stage_cells} comparisons it leans towards harm: {_figures(state)}"
        return Verdict(Stage.ROLLED_BACK, why)
    why = f"nothing against it in {state.stage_cells} comparisons: {_figures(state)}"
    return Verdict(NEXT[state.stage], why)


def judge_weighed(state: GateState) -> Verdict | None:
    """Decide whether the candidate's choices are plausible; None: not enough of them yet, or they are."""
    weighed, terms = state.weighed, state.settings
    if weighed.decisions < terms.plausible_decisions:
        return _after_shadow(state)
    extra = (weighed.candidate_cost - weighed.fallback_cost) / weighed.decisions
    ratio = weighed.candidate_cost / max(weighed.fallback_cost, 1e-9)
    if ratio > terms.implausible_ratio and extra > terms.implausible_cost:
        why = f"not plausible: its choices are expected to cost {ratio:.1f} times what the fallback's would"
        return Verdict(Stage.ROLLED_BACK, why)
    return _after_shadow(state)


def _after_shadow(state: GateState) -> Verdict | None:
    done = state.decisions[Arm.FALLBACK]
    if state.stage is not Stage.SHADOW or done < state.settings.shadow_decisions:
        return None
    return Verdict(Stage.CANARY, f"{done} decisions beside the fallback without a failure")


def _figures(state: GateState) -> str:
    ours, theirs = state.arms[Arm.CANDIDATE], state.arms[Arm.FALLBACK]
    if not ours.tasks or not theirs.tasks:
        return "no figures yet"
    return (
        f"cost {ours.cost / ours.tasks:.3g} against {theirs.cost / theirs.tasks:.3g} a task, "
        f"missed {ours.missed / ours.tasks:.1%} against {theirs.missed / theirs.tasks:.1%} "
        f"({ours.tasks} and {theirs.tasks} tasks, evidence {harm_evidence(state):.3g})"
    )


def figures_of(state: GateState) -> dict[str, float]:
    """Return the figures of both arms, and how much evidence there is."""
    figures = {
        "harm_e_value": harm_evidence(state),
        "good_e_value": state.good.e_value,
        "stage_cells": float(state.stage_cells),
        "failures": float(sum(state.failures.values())),
        "agreed_share": state.agreed / max(state.weighed_in_all, 1),
    }
    figures |= {f"{channel}_excess": excess(state, channel) for channel in CHANNELS}
    for arm, tally in state.arms.items():
        figures |= {
            f"{arm.value}_tasks": float(tally.tasks),
            f"{arm.value}_decisions": float(state.decisions[arm]),
            **{f"{arm.value}_{name}": getattr(tally, name) / max(tally.tasks, 1) for name in CHANNELS},
        }
    return {name: round(value, 6) for name, value in figures.items()}
