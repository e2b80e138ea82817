# pyright: reportMissingImports=false
"""Local training in a federated round: a few updates on what the node recorded, replayed in its own engine.

Only the actor travels. The critic starts anew each time and stays here: the baseline of copies carries
most of its load, and a trainer that remembered would not give the same result for the same instruction.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import numpy as np

from federation.experience import episodes_of, read_experience
from federation.ppo.architecture import Parameters as Actor
from federation.ppo.architecture import faults_of, first_actor, first_critic
from federation.ppo.settings import PpoSettings
from federation.trainer import Parameters, TrainerContext
from federation.values import Scalar
from skerry.errors import FederationError
from twin.fleet.batch import stack
from twin.fleet.engine import Fleet
from twin.fleet.scenario import Episode, Scenario, draw

#: A simulated participant's sites are drawn under this seed plus its number.
SIMULATION_SEED = 40_000


class LocalSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What an instruction may set, each under `ppo.<name>`. The defaults take a few seconds of one core."""

    updates: int = 6
    streams: int = 4
    copies: int = 8
    tasks: int = 80
    epochs: int = 3
    minibatch: int = 512
    rate: float = 5e-4
    entropy: float = 0.002


#: Upper bounds: an instruction may not keep a node busy for hours.
_MOST = {"updates": 200, "streams": 64, "copies": 64, "tasks": 1000, "epochs": 20, "minibatch": 65536}


class PpoTrainer:
    """Improves an actor by PPO. Deterministic in its arguments on one kind of machine."""

    def initial(self, config: Mapping[str, Scalar], seed: int) -> Parameters:
        """Return the actor that does as min-increase."""
        return dict(first_actor(seed))

    def train(
        self, parameters: Parameters, config: Mapping[str, Scalar], context: TrainerContext
    ) -> tuple[Parameters, int, dict[str, float]]:
        """Return (the actor after a few updates, decisions used, metrics).  Raises FederationError."""
        import torch

        from federation.ppo.network import arrays_of
        from federation.ppo.rollout import collect
        from federation.ppo.update import improve, learner_of

        torch.set_num_threads(1)
        given = _actor(parameters)
        local = local_settings(config)
        settings = _settings(local, context)
        episodes = _episodes(local, context)
        learner = learner_of(given, first_critic(settings.seed))
        fleet = Fleet(Scenario(tasks=local.tasks))
        found = []
        for update in range(local.updates):
            rng = np.random.Generator(np.random.Philox(key=[settings.seed, (update << 8) | 3]))
            picked = rng.permutation(len(episodes))[: local.streams]
            fleet.start(
                stack([episodes[i] for i in np.resize(picked, local.streams) for _ in range(local.copies)])
            )
            found.append(improve(learner, collect(learner.actor, fleet, rng), settings, update))
        steps = local.updates * settings.steps_per_update
        metrics = {
            "reward": found[-1].reward,
            "reward_before": found[0].reward,
            "entropy": found[-1].entropy,
            "kl": found[-1].kl,
            "clip_fraction": found[-1].clip_fraction,
            "explained_variance": found[-1].explained_variance,
            "episodes": float(local.updates * local.streams * local.copies),
            "steps": float(steps),
            "arrivals": float(len(episodes) * local.tasks),
        }
        return dict(arrays_of(learner.actor)), steps, metrics


def make_trainer() -> PpoTrainer:
    """Return the trainer; the registry of trainers names this function."""
    return PpoTrainer()


def local_settings(config: Mapping[str, Scalar]) -> LocalSettings:
    """Return what the instruction sets.  Raises FederationError that names an unknown or absurd setting."""
    wanted = {key.removeprefix("ppo."): value for key, value in config.items() if key.startswith("ppo.")}
    if unknown := sorted(set(wanted) - set(LocalSettings.__struct_fields__)):
        raise FederationError(f"there is no setting ppo.{unknown[0]}")
    try:
        found = msgspec.convert(wanted, LocalSettings, strict=False)
    except msgspec.ValidationError as error:
        raise FederationError(f"the instruction's settings are not valid: {error}") from error
    for name, most in _MOST.items():
        if not 1 <= getattr(found, name) <= most:
            raise FederationError(f"ppo.{name} must be 1 to {most}, not {getattr(found, name)}")
    return found


def _actor(parameters: Parameters) -> Actor:
    if faults := faults_of(parameters):
        raise FederationError(f"the parameters are not an actor: {'; '.join(faults)}")
    return {name: array.astype(np.float32) for name, array in parameters.items()}


def _settings(local: LocalSettings, context: TrainerContext) -> PpoSettings:
    return PpoSettings(
        seed=(context.seed & 0x7FFF_FFFF) | 1 << 31,  # apart from the seeds of evaluations
        steps=local.updates * local.streams * local.copies * local.tasks,
        tasks=local.tasks,
        streams=local.streams,
        copies=local.copies,
        epochs=local.epochs,
        minibatch=local.minibatch,
        rate=local.rate,
        entropy=local.entropy,
        last_rate=0.5,
    )


def _episodes(local: LocalSettings, context: TrainerContext) -> list[Episode]:
    if context.directory is not None:
        return episodes_of(read_experience(context.directory), local.tasks)
    scenario = Scenario(devices=(4, 8), tasks=local.tasks)
    seed = SIMULATION_SEED + context.number
    return [draw(scenario, seed, context.version * local.streams + i) for i in range(local.streams)]
