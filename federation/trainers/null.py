"""The trainer that learns nothing: returns what it got plus noise from its seed. For measuring rounds."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from federation.trainer import Parameters, TrainerContext
from federation.values import Scalar

#: Parameters of version 0 unless the run says otherwise: 24 KB, an actor with two layers of 64.
DEFAULT_SIZE = 6_150
_NOISE = 1e-3


class NullTrainer:
    """Echoes. config: `size` (parameters of version 0), `noise` (standard deviation)."""

    def initial(self, config: Mapping[str, Scalar], seed: int) -> Parameters:
        """Return `size` numbers drawn from the seed."""
        size = int(config.get("size", DEFAULT_SIZE))
        return {"w": np.random.default_rng(seed).standard_normal(size, dtype=np.float32)}

    def train(
        self, parameters: Parameters, config: Mapping[str, Scalar], context: TrainerContext
    ) -> tuple[Parameters, int, dict[str, float]]:
        """Return the parameters with noise; one example; the loss is their mean square."""
        rng = np.random.default_rng(context.seed)
        noise = np.float32(config.get("noise", _NOISE))
        trained: Parameters = {
            key: np.add(array, noise * rng.standard_normal(array.shape, dtype=np.float32))
            for key, array in parameters.items()
        }
        loss = float(np.mean([np.mean(np.square(array)) for array in trained.values()]))
        return trained, 1, {"loss": loss}
