# pyright: reportMissingImports=false
"""One PPO update: clipped policy gradient for the actor, squared error for the critic; they share nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from federation.ppo.advantage import against_copies, explained_variance, returns_of
from federation.ppo.architecture import Parameters
from federation.ppo.checkpoint import Figures
from federation.ppo.network import (
    Decisions,
    Tensors,
    critic_input,
    entropy,
    log_shares,
    scores,
    tensors_of,
    values,
)
from federation.ppo.rollout import Rollout
from federation.ppo.settings import PpoSettings


@dataclass(frozen=True)
class Learner:
    """Actor and critic with their optimisers."""

    actor: Tensors
    critic: Tensors
    actor_steps: Any
    critic_steps: Any


def learner_of(actor: Parameters, critic: Parameters) -> Learner:
    """Return a learner that starts at these parameters."""
    tensors, judge = tensors_of(actor), tensors_of(critic)
    steps = [torch.optim.Adam(list(one.values()), lr=0.0, eps=1e-5) for one in (tensors, judge)]
    return Learner(tensors, judge, *steps)


def improve(learner: Learner, rollout: Rollout, settings: PpoSettings, update: int) -> Figures:
    """Change the learner by what these episodes showed.  update: its number, for rates and for shuffling."""
    for steps in (learner.actor_steps, learner.critic_steps):
        steps.param_groups[0]["lr"] = settings.rate_at(update)
    lesson = _lesson(learner, rollout, settings)
    rng = np.random.Generator(np.random.Philox(key=[settings.seed, (update << 8) | 2]))
    weight = settings.entropy_at(update)
    sums, batches, epochs, kl = np.zeros(3), 0, 0, 0.0
    while epochs < settings.epochs and kl <= settings.kl_stop:
        found = [
            _minibatch(learner, lesson, picked, settings, weight) for picked in _split(lesson, settings, rng)
        ]
        kl = float(np.mean([one[0] for one in found]))
        sums += np.sum(found, axis=0)
        batches += len(found)
        epochs += 1
    mean = sums / batches
    return Figures(
        reward=float(rollout.rewards.mean()),
        kl=kl,
        clip_fraction=float(mean[1]),
        entropy=float(mean[2]),
        explained_variance=lesson.foreseen,
        epochs=epochs,
    )


@dataclass(frozen=True)
class _Lesson:
    rollout: Rollout
    starts: NDArray[np.int64]  #: of each decision's rows
    seen: Any  #: the critic's input
    advantages: Any
    returns: Any
    foreseen: float


def _lesson(learner: Learner, rollout: Rollout, settings: PpoSettings) -> _Lesson:
    seen = critic_input(rollout.decisions())
    with torch.no_grad():
        expected = values(learner.critic, seen).numpy().astype(np.float64)
    returns = returns_of(rollout.rewards * settings.reward_scale, settings.discount)
    excess = against_copies(returns - expected.reshape(returns.shape), settings.copies)
    advantages = (excess - excess.mean()) / (excess.std() + 1e-8)
    return _Lesson(
        rollout=rollout,
        starts=np.cumsum(rollout.counts) - rollout.counts,
        seen=seen,
        advantages=torch.from_numpy(advantages.reshape(-1).astype(np.float32)),
        returns=torch.from_numpy(returns.reshape(-1).astype(np.float32)),
        foreseen=explained_variance(expected, returns.reshape(-1)),
    )


def _split(lesson: _Lesson, settings: PpoSettings, rng: np.random.Generator) -> list[NDArray[np.int64]]:
    order = rng.permutation(len(lesson.rollout))
    parts = max(1, round(len(order) / settings.minibatch))
    return np.array_split(order, parts)


def _minibatch(
    learner: Learner, lesson: _Lesson, picked: NDArray[np.int64], settings: PpoSettings, entropy_weight: float
) -> tuple[float, float, float]:
    given, chosen = _gather(lesson, picked)
    which = torch.from_numpy(picked)
    logs = log_shares(scores(learner.actor, given), given)
    shift = logs[chosen] - torch.from_numpy(lesson.rollout.logs[picked])
    ratio, advantage = shift.exp(), lesson.advantages[which]
    clipped = ratio.clamp(1.0 - settings.clip, 1.0 + settings.clip)
    spread = entropy(logs, given)
    gain = torch.minimum(ratio * advantage, clipped * advantage).mean()
    _descend(learner.actor, learner.actor_steps, -gain - entropy_weight * spread, settings.actor_norm)
    error = (values(learner.critic, lesson.seen[which]) - lesson.returns[which]).square().mean()
    _descend(learner.critic, learner.critic_steps, 0.5 * error, settings.critic_norm)
    kl = float((ratio - 1.0 - shift).mean().detach())
    beyond = float(((ratio - 1.0).abs() > settings.clip).float().mean())
    return kl, beyond, float(spread.detach())


def _gather(lesson: _Lesson, picked: NDArray[np.int64]) -> tuple[Decisions, Any]:
    """Return these decisions with their rows end to end, and where the chosen rows are among them."""
    kept = lesson.rollout
    counts = kept.counts[picked]
    ends = np.cumsum(counts)
    firsts = ends - counts
    rows = np.arange(ends[-1]) + np.repeat(lesson.starts[picked] - firsts, counts)
    owner = np.repeat(np.arange(len(picked)), counts)
    given = Decisions(
        torch.from_numpy(kept.rows[rows]),
        torch.from_numpy(owner),
        torch.from_numpy(counts),
        torch.from_numpy(kept.context[picked]),
    )
    return given, torch.from_numpy(firsts + kept.chosen[picked])


def _descend(parameters: Tensors, steps: Any, loss: Any, norm: float) -> None:
    steps.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(list(parameters.values()), norm)
    steps.step()
