"""Local training: what a node recorded changes the actor, the same each time; nothing else leaves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from federation.admission import METRICS
from federation.experience import (
    EXPERIENCE_NAME,
    DeviceSeen,
    Experience,
    RunSeen,
    TaskSeen,
    episodes_of,
)
from federation.ppo.architecture import ACTOR_SHAPES
from federation.ppo.trainer import PpoTrainer, local_settings
from federation.trainer import Parameters, TrainerContext, load_trainer
from skerry.errors import FederationError
from twin.fleet.kinds import KINDS

CONFIG: dict[str, Any] = {
    "ppo.updates": 2,
    "ppo.streams": 2,
    "ppo.copies": 4,
    "ppo.tasks": 20,
    "ppo.minibatch": 64,
    "trainer": "ppo",
}


def context(directory: Path | None = None, number: int = 0) -> TrainerContext:
    return TrainerContext(node="n", seed=11, number=number, count=2, directory=directory)


def recorded(tasks: int, kinds: int = 2) -> Experience:
    """A node with two devices; the accelerator does not know the last kind."""
    names = [f"kind-{n}" for n in range(kinds)]
    fast = {
        name: RunSeen(runtime_s=0.01 * (n + 1), energy_j=0.2, load_s=0.05)
        for n, name in enumerate(names[:-1])
    }
    slow = {name: RunSeen(runtime_s=0.05 * (n + 1), energy_j=1.0) for n, name in enumerate(names)}
    rng = np.random.default_rng(1)
    at = np.cumsum(rng.exponential(0.02, size=tasks))
    return Experience(
        devices=(DeviceSeen(device_class="npu", runs=fast), DeviceSeen(device_class="cpu", runs=slow)),
        tasks=tuple(
            TaskSeen(kind=names[n % kinds], at_s=float(at[n]), priority=n % 10, deadline_s=0.3)
            for n in range(tasks)
        ),
    )


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    (tmp_path / EXPERIENCE_NAME).write_bytes(msgspec.json.encode(recorded(70)))
    return tmp_path


def same(first: Parameters, second: Parameters) -> bool:
    return list(first) == list(second) and all((first[n] == second[n]).all() for n in first)


def test_the_registry_finds_it_and_its_start_is_the_rule() -> None:
    trainer = load_trainer("ppo")

    first = trainer.initial({}, 3)

    assert isinstance(trainer, PpoTrainer)
    assert {name: array.shape for name, array in first.items()} == ACTOR_SHAPES
    assert not first["score.weight"].any()


def test_it_trains_on_the_record_and_tells_only_allowed_figures(directory: Path) -> None:
    first = PpoTrainer().initial({}, 3)
    kept = {name: array.copy() for name, array in first.items()}

    trained, examples, metrics = PpoTrainer().train(first, CONFIG, context(directory))

    assert same(first, kept)
    assert not same(trained, kept)
    assert examples == 2 * 2 * 4 * 20
    assert metrics.keys() <= METRICS
    assert all(np.isfinite(value) for value in metrics.values())
    assert metrics["arrivals"] == 60


def test_the_same_instruction_gives_the_same_bits(directory: Path) -> None:
    first = PpoTrainer().initial({}, 3)

    once, again = (PpoTrainer().train(first, CONFIG, context(directory))[0] for _ in range(2))

    assert same(once, again)


def test_simulated_participants_have_sites_of_their_own() -> None:
    first = PpoTrainer().initial({}, 3)

    one, other = (PpoTrainer().train(first, CONFIG, context(number=n))[0] for n in range(2))

    assert not same(one, other)


def test_without_enough_arrivals_it_says_so(tmp_path: Path) -> None:
    first = PpoTrainer().initial({}, 3)

    with pytest.raises(FederationError, match="no record of arrivals"):
        PpoTrainer().train(first, CONFIG, context(tmp_path))
    (tmp_path / EXPERIENCE_NAME).write_bytes(msgspec.json.encode(recorded(19)))
    with pytest.raises(FederationError, match="19 arrivals are recorded, 20 make an episode"):
        PpoTrainer().train(first, CONFIG, context(tmp_path))


def test_absurd_instructions_are_refused() -> None:
    first = PpoTrainer().initial({}, 3)

    with pytest.raises(FederationError, match=r"no setting ppo\.speed"):
        local_settings({"ppo.speed": 1})
    with pytest.raises(FederationError, match=r"ppo\.updates must be 1 to 200"):
        local_settings({"ppo.updates": 10_000})
    first["prior"] = np.array([np.nan], dtype=np.float32)
    with pytest.raises(FederationError, match="prior holds values that are not finite"):
        PpoTrainer().train(first, CONFIG, context())


def test_the_latest_arrivals_are_kept_in_order() -> None:
    episodes = episodes_of(recorded(70), 20)

    assert len(episodes) == 3
    assert all(one.arrival_s[0] == 0 and (np.diff(one.arrival_s) >= 0).all() for one in episodes)
    assert episodes[0].supported.tolist()[0][:2] == [True, False]


def test_rare_kinds_stand_for_the_nearest_common_one() -> None:
    many = len(KINDS) + 2
    episodes = episodes_of(recorded(30 * many, kinds=many), 30)

    assert max(one.kind.max() for one in episodes) < len(KINDS)
    sizes = np.concatenate([one.size for one in episodes])
    assert len(np.unique(sizes.round(6))) > 1  # stretched to their own run time
    assert all(one.supported[np.arange(2)[:, None], one.kind].any(axis=0).all() for one in episodes)
