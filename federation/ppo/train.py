# pyright: reportMissingImports=false
"""A training run from a seed: rollout, update, checkpoint, until the planned steps are done.

Owns the loop. What it draws depends on the seed and the update's number alone, so that a run that was killed
and resumed ends bit for bit where an undisturbed one does.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

from federation.evaluation import figures
from federation.ppo.architecture import Parameters, first_actor, first_critic
from federation.ppo.checkpoint import Checkpoint, Figures, Point, packed, save
from federation.ppo.network import Tensors, arrays_of, decisions_of, scores
from federation.ppo.rollout import collect, devices_of, highest_place
from federation.ppo.settings import VALIDATION_SEED, PpoSettings
from federation.ppo.update import Learner, improve, learner_of
from policy.baselines.min_increase import MinIncrease
from policy.features import features
from policy.queue_rule import QueueRule
from policy.situation import Picks, Plan, Situation
from skerry.errors import SettingsError
from twin.fleet.engine import Fleet
from twin.fleet.scenario import Scenario

POINT_EVERY = 10
#: The curve: devices, and how many scenarios of each.
POINT_DEVICES = (8, 16)
POINT_SCENARIOS = 64
_MOMENTS = (("mean", "exp_avg"), ("square", "exp_avg_sq"))
_ROOT = Path(__file__).resolve().parents[2]
#: What decides the result of a run: changed code makes another policy from the same seed.
_CODE = (
    *(
        f"federation/ppo/{n}.py"
        for n in ("advantage", "architecture", "network", "rollout", "settings", "update")
    ),
    *(f"policy/{n}.py" for n in ("features", "objective", "queue_rule", "situation")),
    *(f"twin/fleet/{n}.py" for n in ("batch", "engine", "kinds", "queues", "scenario")),
)


class TrainingRun:
    """One run: its learner, its history, and where it stands."""

    def __init__(self, settings: PpoSettings, *, actor: Parameters | None = None, parent: str = "") -> None:
        """actor: where to start; None: at min-increase.  parent: file hash of the policy it came from."""
        self.settings, self.parent = settings, parent
        self.update = 0
        self.cpu_s = 0.0
        self.history: list[Figures] = []
        self.curve: list[Point] = []
        self.code = code_hash()  # read now: files may change while the run goes on
        first = first_actor(settings.seed) if actor is None else actor
        self.learner: Learner = learner_of(first, first_critic(settings.seed))
        self._fleet = Fleet(Scenario(devices=settings.devices, tasks=settings.tasks), seed=settings.seed)
        self._rule: dict[int, float] = {}

    @classmethod
    def resumed(cls, checkpoint: Checkpoint) -> TrainingRun:
        """Return the run as it stood when the checkpoint was written."""
        if checkpoint.code and checkpoint.code != code_hash():
            raise SettingsError("the code changed since this run began: start it anew in another directory")
        run = cls(checkpoint.settings, parent=checkpoint.lineage_parent)
        run.update, run.cpu_s = checkpoint.update, checkpoint.cpu_s
        run.history, run.curve = list(checkpoint.history), list(checkpoint.curve)
        run.learner = learner_of(checkpoint.part("actor"), checkpoint.part("critic"))
        _restore(run.learner.actor, run.learner.actor_steps, checkpoint, "actor")
        _restore(run.learner.critic, run.learner.critic_steps, checkpoint, "critic")
        return run

    @property
    def is_done(self) -> bool:
        """Whether the planned steps are done."""
        return self.update >= self.settings.updates

    def advance(self) -> Figures:
        """Do one update."""
        begun = time.process_time()
        s, number = self.settings, self.update
        streams = np.arange(number * s.streams, (number + 1) * s.streams)
        self._fleet.reset(np.repeat(streams, s.copies).tolist())
        rng = np.random.Generator(np.random.Philox(key=[s.seed, (number << 8) | 1]))
        found = improve(self.learner, collect(self.learner.actor, self._fleet, rng), s, number)
        self.update += 1
        self.cpu_s += time.process_time() - begun
        self.history.append(found)
        return found

    def measure(self) -> Point:
        """Add a point to the curve: the arg-max policy against min-increase on the validation scenarios."""
        player = TorchPolicy(self.learner.actor)
        ratios = {}
        for devices in POINT_DEVICES:
            if devices not in self._rule:
                self._rule[devices] = _mean_cost(MinIncrease(), devices)
            ratios[devices] = _mean_cost(player, devices) / self._rule[devices]
        self.curve.append(Point(update=self.update, ratio=ratios))
        return self.curve[-1]

    def checkpoint(self) -> Checkpoint:
        """Return the run as a value."""
        parts = {"actor": arrays_of(self.learner.actor), "critic": arrays_of(self.learner.critic)}
        for name, tensors, steps in (
            ("actor", self.learner.actor, self.learner.actor_steps),
            ("critic", self.learner.critic, self.learner.critic_steps),
        ):
            parts |= _moments(name, tensors, steps)
        return Checkpoint(
            settings=self.settings,
            update=self.update,
            cpu_s=self.cpu_s,
            arrays=packed(parts),
            history=tuple(self.history),
            curve=tuple(self.curve),
            lineage_parent=self.parent,
            code=self.code,
        )


class TorchPolicy:
    """The actor in training as an array scheduler that takes the highest score."""

    name = "ppo-in-training"
    queue_rule = QueueRule.WSPT

    def __init__(self, actor: Tensors) -> None:
        """Look at the tensors as they are when asked."""
        self._actor = actor

    def choose_many(self, situation: Situation, planned: Plan) -> Picks:
        """Pick the highest score on every node."""
        rows, context = features(situation, planned)
        mask: Any = situation.mask
        counts = mask.sum(axis=1)
        with torch.no_grad():
            found = scores(self._actor, decisions_of(rows[mask], counts, context)).numpy()
        return Picks(device=devices_of(mask, highest_place(found, counts)))


def train(run: TrainingRun, directory: Path, report: Callable[[TrainingRun], None]) -> None:
    """Go on until the planned steps are done, keeping checkpoints.  report: called after every update."""
    directory.mkdir(parents=True, exist_ok=True)
    if not run.curve:
        run.measure()
    report(run)
    while not run.is_done:
        run.advance()
        if run.update % POINT_EVERY == 0 or run.is_done:
            run.measure()
        save(directory, run.checkpoint())
        report(run)


@cache
def code_hash() -> str:
    """Return the content hash of the code that decides what a seed leads to."""
    total = hashlib.sha256()
    for name in _CODE:
        total.update(f"{name}\n".encode() + (_ROOT / name).read_bytes())
    return f"sha256:{total.hexdigest()}"


def _mean_cost(scheduler: Any, devices: int) -> float:
    return float(figures(scheduler, devices, POINT_SCENARIOS, VALIDATION_SEED).cost.mean())


def _moments(name: str, tensors: Tensors, steps: Any) -> dict[str, Parameters]:
    found: dict[str, Parameters] = {}
    for short, key in _MOMENTS:
        kept = {n: steps.state[t][key].numpy().copy() for n, t in tensors.items() if t in steps.state}
        found[f"{name}.{short}"] = kept
    counts = {n: np.array([int(steps.state[t]["step"])]) for n, t in tensors.items() if t in steps.state}
    found[f"{name}.steps"] = counts
    return found


def _restore(tensors: Tensors, steps: Any, checkpoint: Checkpoint, name: str) -> None:
    parts = {key: checkpoint.part(f"{name}.{short}") for short, key in _MOMENTS}
    counts = checkpoint.part(f"{name}.steps")
    for which, tensor in tensors.items():
        if which in counts:
            state = {key: torch.tensor(part[which]) for key, part in parts.items()}
            steps.state[tensor] = {"step": torch.tensor(float(counts[which][0])), **state}
