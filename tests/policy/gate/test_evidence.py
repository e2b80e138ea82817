"""The bets hold what they promise: no drift without a difference, few false alarms, quick finds."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policy.gate.cells import draw, harm_scores, open_cell
from policy.gate.evidence import Bets, rank_scores
from policy.gate.settings import GateSettings
from policy.gate.state import Arm, Stage, Tally

FIGURES = st.lists(st.integers(0, 5).map(float), min_size=2, max_size=12)


@settings(derandomize=True, max_examples=200, deadline=None)
@given(FIGURES)
def test_scores_have_mean_zero_over_the_draw_whatever_the_blocks_show(values: list[float]) -> None:
    scores = [rank_scores(values, odd) for odd in range(len(values))]

    assert sum(linear for linear, _ in scores) == pytest.approx(0.0, abs=1e-9)
    assert sum(extreme for _, extreme in scores) == pytest.approx(0.0, abs=1e-9)
    assert all(linear >= -1.0 and extreme >= -1.0 for linear, extreme in scores)


def test_the_draw_depends_on_seed_and_counter_only_and_reaches_every_place() -> None:
    drawn = [draw(7, index, 4) for index in range(400)]

    assert drawn == [draw(7, index, 4) for index in range(400)]
    assert drawn != [draw(8, index, 4) for index in range(400)]
    assert {drawn.count(place) > 70 for place in range(4)} == {True}


def test_without_a_difference_false_alarms_stay_below_alpha_under_any_load() -> None:
    alarms = 0
    for seed in range(500):
        rng = random.Random(seed)
        bets = [Bets(), Bets()]
        level = 1.0
        for _ in range(100):
            level *= rng.choice((0.3, 1.0, 3.0))  # a load that wanders
            scores = rank_scores([level * rng.random() for _ in range(4)], rng.randrange(4))
            for one, score in zip(bets, scores, strict=True):
                one.bet(score)
            if sum(one.e_value for one in bets) / 2 >= 50:
                alarms += 1
                break

    assert alarms / 500 <= 0.02


def test_a_block_that_is_always_the_worst_is_found_out_in_a_few_cells() -> None:
    linear, extreme = Bets(), Bets()
    cells = 0
    while (linear.e_value + extreme.e_value) / 2 < 50:
        for one, score in zip((linear, extreme), rank_scores([1.0, 1.0, 9.0, 1.0], 2), strict=True):
            one.bet(score)
        cells += 1

    assert cells <= 5


def test_a_restarted_bet_forgets_its_losses_but_not_its_gains() -> None:
    bets = Bets()
    for _ in range(50):
        bets.restart_below_one()
        bets.bet(-1.0)
    lost = bets.e_value
    for _ in range(8):
        bets.restart_below_one()
        bets.bet(1.0)

    assert lost < 1.0
    assert bets.e_value > 20.0


def test_under_full_the_fallbacks_block_being_best_speaks_against_the_candidate() -> None:
    cell = open_cell(1, 0, Stage.FULL, GateSettings(full_blocks=4))
    for block in cell.blocks:
        block.tally = Tally(tasks=2, cost=0.1 if block.arm is Arm.FALLBACK else 5.0)

    assert harm_scores(cell, "cost") == (1.0, 3.0)


def test_a_cell_without_figures_of_the_rarer_arm_says_nothing() -> None:
    cell = open_cell(1, 0, Stage.CANARY, GateSettings())
    for block in cell.blocks:
        block.tally = Tally(tasks=0 if block.arm is Arm.CANDIDATE else 3, cost=1.0)

    assert harm_scores(cell, "cost") is None
