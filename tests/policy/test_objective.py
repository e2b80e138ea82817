"""The objective: its terms, its weights and what priorities count."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from policy.objective import DEFAULT_WEIGHTS, ObjectiveWeights, Terms, cost, priority_weight, reward

TERMS = Terms(useful=3.0, completion=0.5, energy=4.0, violation=2.0)


def test_the_cost_weighs_each_term_and_the_reward_is_its_negative() -> None:
    assert cost(TERMS) == pytest.approx(0.1 * 0.5 + 0.02 * 4.0 + 2.0)
    assert reward(TERMS) == -cost(TERMS)
    assert cost(TERMS, ObjectiveWeights(useful=1.0)) == pytest.approx(cost(TERMS) - 3.0)
    assert cost(TERMS, ObjectiveWeights(completion=0, energy=0, violation=0)) == 0


def test_arrays_and_floats_give_the_same() -> None:
    many = Terms(*(np.array([value, 2 * value]) for value in (3.0, 0.5, 4.0, 2.0)))

    assert cost(many).tolist() == [cost(TERMS), 2 * cost(TERMS)]


def test_a_priority_counts_by_its_level() -> None:
    assert [priority_weight(p) for p in (0, 3, 4, 6, 7, 9, 99, -1)] == [1, 1, 2, 2, 4, 4, 4, 1]


def test_a_misspelt_weight_is_refused() -> None:
    with pytest.raises(msgspec.ValidationError, match="enrgy"):
        msgspec.convert({"enrgy": 1.0}, ObjectiveWeights)

    assert msgspec.convert({}, ObjectiveWeights) == DEFAULT_WEIGHTS
