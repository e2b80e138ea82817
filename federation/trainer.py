"""The port between the Flower client and what trains. Owns the protocol and the registry; trains nothing.

Knows neither Flower nor torch: a trainer's module is imported when an instruction names it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from federation.values import Scalar
from skerry.errors import FederationError

Parameters = dict[str, NDArray[np.generic]]


@dataclass(frozen=True, kw_only=True)
class TrainerContext:
    """Where and for what a trainer runs. seed: differs by run, version and node.

    number: this node's place among `count` participants, when somebody numbers them (simulation does).
    directory: what the node has recorded; None in a simulation.
    """

    node: str
    run_id: str = ""
    version: int = 0
    seed: int = 0
    number: int = 0
    count: int = 1
    directory: Path | None = None
    extra: Mapping[str, Scalar] = field(default_factory=dict)


class LocalTrainer(Protocol):
    """Improves parameters on what the node has. Deterministic in its arguments."""

    def initial(self, config: Mapping[str, Scalar], seed: int) -> Parameters:
        """Return version 0, for a run without a base."""
        ...

    def train(
        self, parameters: Parameters, config: Mapping[str, Scalar], context: TrainerContext
    ) -> tuple[Parameters, int, dict[str, float]]:
        """Return (new parameters with the same keys, shapes and types; examples used; metrics).

        Must not change `parameters`. Metrics: names of admission.METRICS only, others make the reply refused.
        """
        ...


#: name → "module:factory"
TRAINERS: dict[str, str] = {
    "null": "federation.trainers.null:NullTrainer",
    "toy": "federation.trainers.toy:ToyTrainer",
    "ppo": "federation.ppo.trainer:make_trainer",
}


def load_trainer(name: str) -> LocalTrainer:
    """Return a trainer by name.  Raises FederationError, naming the known ones or what is not installed."""
    if name not in TRAINERS:
        raise FederationError(f"there is no trainer {name[:40]!r}; known: {', '.join(sorted(TRAINERS))}")
    module, _, factory = TRAINERS[name].partition(":")
    try:
        make: Callable[[], LocalTrainer] = getattr(import_module(module), factory)
    except ImportError as error:
        raise FederationError(f"trainer {name} cannot be loaded here: {error}") from error
    return make()
