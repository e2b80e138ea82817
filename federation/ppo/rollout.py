# pyright: reportMissingImports=false
"""Whole episodes with sampled decisions. Owns the draw and the record of what was seen, done and earned."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from federation.ppo.network import Decisions, Tensors, decisions_of, log_shares, scores

Float32s = NDArray[np.float32]
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


class StepLike(Protocol):
    """What a step of the environment brings."""

    @property
    def reward(self) -> Floats:
        """[episodes]."""
        ...


class Environment(Protocol):
    """A batch of episodes stepped together, as `twin.fleet.engine.Fleet` is."""

    @property
    def done(self) -> bool:
        """Whether the episodes are over."""
        ...

    def observe(self) -> tuple[Float32s, Bools, Float32s]:
        """Return (rows [episodes, devices, F], mask [episodes, devices], context [episodes, C])."""
        ...

    def step(self, actions: Ints) -> StepLike:
        """Do one decision in every episode."""
        ...


@dataclass(frozen=True, kw_only=True)
class Rollout:
    """Decisions of whole episodes, step by step: decision = step × episodes + episode."""

    rows: Float32s  #: [candidates of all, F]
    counts: Ints  #: [decisions]
    context: Float32s  #: [decisions, C]
    chosen: Ints  #: [decisions] place of the chosen candidate among its decision's rows
    logs: Float32s  #: [decisions] logarithm of the probability it had
    rewards: Floats  #: [steps, episodes]

    def __len__(self) -> int:
        """How many decisions."""
        return len(self.counts)

    def decisions(self) -> Decisions:
        """Return them all as torch sees them."""
        return decisions_of(self.rows, self.counts, self.context)


def collect(actor: Tensors, environment: Environment, rng: np.random.Generator) -> Rollout:
    """Play the environment to its end with decisions drawn from the actor."""
    seen: list[tuple[Float32s, Ints, Float32s, Ints, Float32s]] = []
    rewards: list[Floats] = []
    while not environment.done:
        rows, mask, context = environment.observe()
        flat, counts = rows[mask], mask.sum(axis=1)
        chosen, logs = sample(actor, decisions_of(flat, counts, context), rng)
        seen.append((flat, counts, context, chosen, logs))
        rewards.append(environment.step(devices_of(mask, chosen)).reward)
    flat, counts, context, chosen, logs = (np.concatenate(part) for part in zip(*seen, strict=True))
    return Rollout(
        rows=flat,
        counts=counts.astype(np.int64),
        context=context,
        chosen=chosen.astype(np.int64),
        logs=logs,
        rewards=np.stack(rewards),
    )


def sample(actor: Tensors, given: Decisions, rng: np.random.Generator) -> tuple[Ints, Float32s]:
    """Draw a candidate for each decision: (its place among the decision's rows, log probability)."""
    with torch.no_grad():
        found = scores(actor, given)
        logs = log_shares(found, given).numpy()
    counts = given.counts.numpy()
    starts = np.cumsum(counts) - counts
    # Adding Gumbel noise and taking the highest draws from the distribution.
    noisy = logs - np.log(-np.log(rng.random(len(logs)) + 1e-20) + 1e-20)
    chosen = highest_place(noisy, counts)
    return chosen, logs[starts + chosen]


def highest_place(values: NDArray[np.floating], counts: Ints) -> Ints:
    """Return, for each decision, the place of its highest value among its rows; the first on a tie."""
    width = int(counts.max())
    dense = np.full((len(counts), width), -np.inf)
    dense[np.arange(width) < counts[:, None]] = values
    places: Ints = dense.argmax(axis=1)
    return places


def devices_of(mask: Bools, chosen: Ints) -> Ints:
    """Return the device numbers of the chosen places among each episode's feasible devices."""
    rank = np.cumsum(mask, axis=1) - 1
    devices: Ints = (mask & (rank == chosen[:, None])).argmax(axis=1)
    return devices
