# pyright: reportMissingImports=false
"""Forward passes of actor and critic in torch, over rows of many decisions laid end to end.

Only feasible candidates have a row: scoring padded ones costs more than everything else in an update.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from federation.ppo.architecture import FINE_COLUMNS, FINE_SCALE, PRIOR_COLUMN, PRIOR_UNIT, Parameters

Tensors = dict[str, Any]


@dataclass(frozen=True)
class Decisions:
    """Many decisions. rows: [candidates of all, F]; owner: which decision a row belongs to."""

    rows: Any
    owner: Any  #: [candidates of all], ascending
    counts: Any  #: [decisions] candidates of each
    context: Any  #: [decisions, C]

    def __len__(self) -> int:
        """How many decisions."""
        return int(self.counts.shape[0])


def decisions_of(rows: NDArray[np.float32], counts: NDArray[np.int64], context: Any) -> Decisions:
    """Return decisions from gathered rows.  counts: how many rows each decision has, in order."""
    owner = np.repeat(np.arange(len(counts)), counts)
    return Decisions(
        torch.from_numpy(rows), torch.from_numpy(owner), torch.from_numpy(counts), torch.from_numpy(context)
    )


def tensors_of(parameters: Parameters) -> Tensors:
    """Return trainable copies."""
    return {name: torch.tensor(array, requires_grad=True) for name, array in parameters.items()}


def arrays_of(tensors: Tensors) -> Parameters:
    """Return copies as arrays."""
    return {name: tensor.detach().numpy().copy() for name, tensor in tensors.items()}


def scores(actor: Tensors, given: Decisions) -> Any:
    """Return one score per row."""
    fine = torch.tanh(FINE_SCALE * given.rows[:, FINE_COLUMNS])
    hidden = torch.relu(_linear(torch.cat([given.rows, fine], dim=1), actor, "row1"))
    hidden = torch.relu(_linear(hidden, actor, "row2"))
    node = torch.relu(_linear(torch.cat([_mean(hidden, given), given.context], dim=1), actor, "node"))
    mixed = hidden @ actor["mix_row.weight"].T + actor["mix.bias"]
    mixed = torch.relu(mixed + (node @ actor["mix_node.weight"].T)[given.owner])
    rule = PRIOR_UNIT * actor["prior"] * given.rows[:, PRIOR_COLUMN]
    return (mixed @ actor["score.weight"].T).squeeze(1) - rule


def log_shares(found: Any, given: Decisions) -> Any:
    """Return the logarithm of each row's probability inside its decision."""
    highest = torch.full((len(given),), -torch.inf).scatter_reduce(0, given.owner, found.detach(), "amax")
    shifted = found - highest[given.owner]
    total = torch.zeros(len(given)).index_add(0, given.owner, shifted.exp())
    return shifted - total.log()[given.owner]


def entropy(logs: Any, given: Decisions) -> Any:
    """Return the mean entropy of the decisions."""
    return -(logs.exp() * logs).sum() / len(given)


def values(critic: Tensors, seen: Any) -> Any:
    """Return the critic's expectation for each decision.  seen: what critic_input gave."""
    hidden = torch.tanh(_linear(seen, critic, "in"))
    hidden = torch.tanh(_linear(hidden, critic, "mid"))
    return _linear(hidden, critic, "out").squeeze(1)


def critic_input(given: Decisions) -> Any:
    """Return mean and maximum of each decision's rows, and its context."""
    width = given.rows.shape[1]
    owner = given.owner[:, None].expand(-1, width)
    highest = torch.full((len(given), width), -torch.inf).scatter_reduce(0, owner, given.rows, "amax")
    return torch.cat([_mean(given.rows, given), highest, given.context], dim=1)


def _mean(rows: Any, given: Decisions) -> Any:
    total = torch.zeros(len(given), rows.shape[1]).index_add(0, given.owner, rows)
    return total / given.counts[:, None]


def _linear(values: Any, parameters: Tensors, name: str) -> Any:
    return torch.addmm(parameters[f"{name}.bias"], values, parameters[f"{name}.weight"].T)
