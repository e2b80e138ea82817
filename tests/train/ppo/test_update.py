"""PPO on an environment small enough to know what must come out, and its parts against plain sums."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
import torch

from federation.ppo.advantage import against_copies, explained_variance, returns_of
from federation.ppo.architecture import ACTOR_SHAPES, first_actor, first_critic, scores
from federation.ppo.network import arrays_of, decisions_of, log_shares, tensors_of
from federation.ppo.network import scores as torch_scores
from federation.ppo.rollout import collect, devices_of, highest_place
from federation.ppo.settings import PpoSettings
from federation.ppo.update import improve, learner_of
from policy.features import CANDIDATE_FEATURES, C, F

ENERGY = CANDIDATE_FEATURES.index("energy")


@dataclass(frozen=True)
class Step:
    """What the bandit gives."""

    reward: np.ndarray


class Bandit:
    """Every decision stands alone: the candidate with the least energy is worth 1, the others nothing."""

    def __init__(self, episodes: int, steps: int, seed: int) -> None:
        self._rng = np.random.default_rng(seed)
        self._left, self._episodes = steps, episodes
        self._draw()

    @property
    def done(self) -> bool:
        return self._left == 0

    def _draw(self) -> None:
        self.rows = self._rng.random((self._episodes, 4, F)).astype(np.float32)
        self.mask = self._rng.random((self._episodes, 4)) < 0.8
        self.mask[:, 0] = True
        self.rows[~self.mask] = 0.0

    def observe(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        return self.rows, self.mask, np.zeros((self._episodes, C), dtype=np.float32)

    def best(self) -> np.ndarray:
        return np.where(self.mask, self.rows[..., ENERGY], np.inf).argmin(axis=1)

    def step(self, actions: np.ndarray) -> Step:
        found = Step((actions == self.best()).astype(float))
        self._left -= 1
        if self._left:
            self._draw()
        return found


SETTINGS = PpoSettings(
    seed=1, steps=40 * 32 * 16, tasks=16, streams=4, copies=8, minibatch=128, rate=3e-3, discount=0.5
)


def test_it_learns_what_is_rewarded() -> None:
    actor = first_actor(1)
    actor["prior"][:] = 0.0
    learner = learner_of(actor, first_critic(1))
    hits = []

    for update in range(40):
        rollout = collect(learner.actor, Bandit(32, 16, update), np.random.default_rng(update))
        improve(learner, rollout, SETTINGS, update)
        hits.append(rollout.rewards.mean())

    assert hits[0] < 0.5
    assert np.mean(hits[-3:]) > 0.75


def test_an_update_is_the_same_each_time() -> None:
    def once() -> dict[str, np.ndarray]:
        learner = learner_of(first_actor(2), first_critic(2))
        improve(learner, collect(learner.actor, Bandit(32, 16, 5), np.random.default_rng(0)), SETTINGS, 0)
        return arrays_of(learner.actor)

    first, second = once(), once()

    assert all((first[name] == second[name]).all() for name in ACTOR_SHAPES)


def test_torch_scores_as_the_plain_form_does() -> None:
    rng = np.random.default_rng(3)
    actor = first_actor(3)
    actor["score.weight"] = rng.standard_normal(actor["score.weight"].shape).astype(np.float32)
    counts = np.array([1, 5, 3])
    rows = rng.random((9, F)).astype(np.float32)
    context = rng.random((3, C)).astype(np.float32)

    found = torch_scores(tensors_of(actor), decisions_of(rows, counts, context)).detach().numpy()

    ends = np.cumsum(counts)
    plain = [
        scores(actor, rows[end - n : end], context[i])
        for i, (end, n) in enumerate(zip(ends, counts, strict=True))
    ]
    np.testing.assert_allclose(found, np.concatenate(plain), rtol=1e-4, atol=1e-5)


def test_shares_add_up_inside_each_decision() -> None:
    given = decisions_of(
        np.zeros((5, F), dtype=np.float32), np.array([2, 3]), np.zeros((2, C), dtype=np.float32)
    )

    shares = log_shares(torch.tensor([100.0, -100.0, 1.0, 1.0, 1.0]), given).exp().numpy()

    np.testing.assert_allclose(shares, [1.0, 0.0, 1 / 3, 1 / 3, 1 / 3], atol=1e-6)


def test_a_gradient_is_the_slope_that_differences_show() -> None:
    rng = np.random.default_rng(4)
    given = decisions_of(
        rng.random((6, F)).astype(np.float32), np.array([2, 4]), rng.random((2, C)).astype(np.float32)
    )
    actor = tensors_of(first_actor(4))
    with torch.no_grad():
        actor["score.weight"].normal_(generator=torch.Generator().manual_seed(4))
    log_shares(torch_scores(actor, given), given)[1].backward()
    slope = float(actor["mix.bias"].grad[7])

    def at(shift: float) -> float:
        with torch.no_grad():
            actor["mix.bias"][7] += shift
            found = float(log_shares(torch_scores(actor, given), given)[1])
            actor["mix.bias"][7] -= shift
        return found

    assert slope == pytest.approx((at(1e-2) - at(-1e-2)) / 2e-2, abs=2e-3)


def test_returns_are_discounted_sums() -> None:
    found = returns_of(np.array([[1.0, 0.0], [2.0, 4.0], [4.0, 0.0]]), 0.5)

    np.testing.assert_allclose(found, [[3.0, 2.0], [4.0, 4.0], [4.0, 0.0]])


def test_what_all_copies_share_cancels() -> None:
    luck = np.array([[5.0] * 4 + [-3.0] * 4])
    own = np.array([[1.0, -1.0, 0.0, 0.0, 2.0, 0.0, 0.0, -2.0]])

    found = against_copies(luck + own, 4)

    np.testing.assert_allclose(found, own * 4 / 3)


def test_the_critics_foresight_is_a_share_of_the_variance() -> None:
    returns = np.array([1.0, 2.0, 3.0, 4.0])

    assert explained_variance(returns, returns) == 1.0
    assert explained_variance(np.zeros(4), returns) == 0.0
    assert explained_variance(np.zeros(4), np.ones(4)) == 0.0


def test_places_and_devices_name_the_same_candidate() -> None:
    mask = np.array([[True, False, True, True], [False, True, False, False]])

    chosen = highest_place(np.array([0.1, 0.3, 0.2, 9.0]), mask.sum(axis=1))

    assert chosen.tolist() == [1, 0]
    assert devices_of(mask, chosen).tolist() == [2, 1]
