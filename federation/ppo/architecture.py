"""The actor and the critic as named arrays: their shapes, their order and their first values.

Owns what a parameter is called and where the actor starts. Must not import torch: a coordinator makes
version 0 of a federated run from here, and the export to ONNX reads the same names.

The actor scores each candidate by itself and mixes in the mean over all of them and the node's context. Its
score starts as -50 × prior × (regret of the increase of cost): the rule min-increase, which training amends.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from policy.features import CANDIDATE_FEATURES, C, F

Parameters = dict[str, NDArray[np.float32]]

HIDDEN = 48
CRITIC_HIDDEN = 64
#: The column that ranks candidates as the rule min-increase does: 0 for its choice.
PRIOR_COLUMN = CANDIDATE_FEATURES.index("regret_increase")
#: The prior's unit, and its first value. Soft on purpose: half of all decisions are about less than 0.0125 of
#: cost, so that nearly all that is not a violation is tried. Twelve times as sharp, learning stalls.
PRIOR_UNIT = 50.0
FIRST_PRIOR = 0.16
#: Costs are seen a second time through tanh(FINE_SCALE × cost): what matters in quiet times is about 0.01,
#: a violation 1 and more.
FINE_COLUMNS = tuple(
    CANDIDATE_FEATURES.index(name)
    for name in ("own_cost", "last_cost", "added_cost", "increase", "regret_last_cost", "regret_increase")
)
FINE_SCALE = 20.0

#: Name → shape, in the order in which parameters travel.
ACTOR_SHAPES: dict[str, tuple[int, ...]] = {
    "row1.weight": (HIDDEN, F + len(FINE_COLUMNS)),
    "row1.bias": (HIDDEN,),
    "row2.weight": (HIDDEN, HIDDEN),
    "row2.bias": (HIDDEN,),
    "node.weight": (HIDDEN, HIDDEN + C),
    "node.bias": (HIDDEN,),
    "mix_row.weight": (HIDDEN, HIDDEN),
    "mix_node.weight": (HIDDEN, HIDDEN),
    "mix.bias": (HIDDEN,),
    "score.weight": (1, HIDDEN),
    "prior": (1,),
}
#: The critic sees mean and maximum of the candidates' numbers, and the context.
CRITIC_SHAPES: dict[str, tuple[int, ...]] = {
    "in.weight": (CRITIC_HIDDEN, 2 * F + C),
    "in.bias": (CRITIC_HIDDEN,),
    "mid.weight": (CRITIC_HIDDEN, CRITIC_HIDDEN),
    "mid.bias": (CRITIC_HIDDEN,),
    "out.weight": (1, CRITIC_HIDDEN),
    "out.bias": (1,),
}


def first_actor(seed: int) -> Parameters:
    """Return an actor that chooses as min-increase does: its last layer is 0, the others are random."""
    actor = _drawn(ACTOR_SHAPES, np.random.Generator(np.random.Philox(key=[seed, 1])))
    actor["score.weight"] = np.zeros_like(actor["score.weight"])
    actor["prior"] = np.full((1,), FIRST_PRIOR, dtype=np.float32)
    return actor


def first_critic(seed: int) -> Parameters:
    """Return a critic that expects nothing."""
    critic = _drawn(CRITIC_SHAPES, np.random.Generator(np.random.Philox(key=[seed, 2])))
    critic["out.weight"] = np.zeros_like(critic["out.weight"])
    return critic


def faults_of(parameters: Mapping[str, Any]) -> list[str]:
    """Return what keeps these arrays from being an actor, in words; empty: nothing does."""
    if set(parameters) != set(ACTOR_SHAPES):
        odd = sorted(set(parameters) ^ set(ACTOR_SHAPES))
        return [f"names differ: {', '.join(odd[:6])}"]
    return [fault for name, shape in ACTOR_SHAPES.items() if (fault := _fault(name, parameters[name], shape))]


def _fault(name: str, array: Any, shape: tuple[int, ...]) -> str:
    if array.shape != shape:
        return f"{name} has shape {array.shape}, not {shape}"
    if array.dtype != np.float32:
        return f"{name} is {array.dtype}, not float32"
    return "" if np.isfinite(array).all() else f"{name} holds values that are not finite"


def scores(actor: Parameters, rows: NDArray[np.float32], context: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the scores of one node's candidates.  rows: [candidates, F]; context: [C].

    The plain form that the fast ones are checked against.
    """
    seen = np.concatenate([rows, np.tanh(np.float32(FINE_SCALE) * rows[:, FINE_COLUMNS])], axis=1)
    hidden = np.maximum(seen @ actor["row1.weight"].T + actor["row1.bias"], 0)
    hidden = np.maximum(hidden @ actor["row2.weight"].T + actor["row2.bias"], 0)
    pooled = np.concatenate([hidden.mean(axis=0), context])
    node = np.maximum(actor["node.weight"] @ pooled + actor["node.bias"], 0)
    mixed = hidden @ actor["mix_row.weight"].T + actor["mix_node.weight"] @ node + actor["mix.bias"]
    learned: NDArray[np.float32] = np.maximum(mixed, 0) @ actor["score.weight"][0]
    rule: NDArray[np.float32] = actor["prior"] * rows[:, PRIOR_COLUMN] * np.float32(PRIOR_UNIT)
    return np.subtract(learned, rule, dtype=np.float32)


def _drawn(shapes: Mapping[str, tuple[int, ...]], rng: np.random.Generator) -> Parameters:
    return {name: _first(shape, rng) for name, shape in shapes.items()}


def _first(shape: tuple[int, ...], rng: np.random.Generator) -> NDArray[np.float32]:
    if len(shape) == 1:
        return np.zeros(shape, dtype=np.float32)
    drawn: NDArray[np.float64] = rng.standard_normal(shape) * math.sqrt(2.0 / shape[1])
    return drawn.astype(np.float32)
