"""A small regression that every node solves on data of its own. Deterministic: for tests of equality.

The data come from the participant's number: the same cohort has the same data whatever carries the messages.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from federation.trainer import Parameters, TrainerContext
from federation.values import Scalar

_FEATURES = 8
_TRUTH = np.linspace(-1.0, 1.0, _FEATURES)
_EXAMPLES = 64
_RATE = 0.1
_STEPS = 5


class ToyTrainer:
    """Linear regression by gradient steps. config: `rate`, `steps`."""

    def initial(self, config: Mapping[str, Scalar], seed: int) -> Parameters:
        """Return zeros."""
        return {"weights": np.zeros(_FEATURES, np.float32), "bias": np.zeros(1, np.float32)}

    def train(
        self, parameters: Parameters, config: Mapping[str, Scalar], context: TrainerContext
    ) -> tuple[Parameters, int, dict[str, float]]:
        """Return the parameters after a few steps of gradient descent on this participant's examples."""
        inputs, targets = _examples(context.number)
        weights = parameters["weights"].astype(np.float64)
        bias = parameters["bias"].astype(np.float64)
        before = _loss(inputs, targets, weights, bias)
        for _ in range(int(config.get("steps", _STEPS))):
            residual = inputs @ weights + bias - targets
            weights = weights - float(config.get("rate", _RATE)) * (inputs.T @ residual) / len(targets)
            bias = bias - float(config.get("rate", _RATE)) * residual.mean()
        trained: Parameters = {"weights": weights.astype(np.float32), "bias": bias.astype(np.float32)}
        metrics = {"loss": _loss(inputs, targets, weights, bias), "loss_before": before}
        return trained, len(targets), metrics


def _examples(number: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    rng = np.random.default_rng(1000 + number)
    inputs = rng.standard_normal((_EXAMPLES + 8 * (number % 5), _FEATURES)) + 0.1 * (number % 5)
    return inputs, inputs @ _TRUTH + 0.5 + 0.01 * rng.standard_normal(len(inputs))


def _loss(
    inputs: NDArray[np.float64],
    targets: NDArray[np.float64],
    weights: NDArray[np.float64],
    bias: NDArray[np.float64],
) -> float:
    return float(np.mean(np.square(inputs @ weights + bias - targets)))
