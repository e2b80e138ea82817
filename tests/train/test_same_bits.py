"""The same cohort gives the same parameters to the last bit, whatever carries the messages."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from federation.flower import internals
from federation.flower.client_app import app as client_app
from federation.flower.journal import MemoryJournal
from federation.flower.server_app import app as server_app
from federation.flower.settings import from_run_config, to_run_config
from federation.grid.local import LocalGrid, numbered
from federation.values import RunSpec, RunState
from federation.wire import content_hash, pack

NODES = [f"n{n}" for n in range(4)]


def made_locally(spec: RunSpec, nodes: list[str] = NODES) -> tuple[str, dict[str, float]]:
    """The hash and the metrics of the last version on the in-process grid."""
    journal = MemoryJournal(spec)
    grid = LocalGrid(client_app, numbered(nodes), journal=journal)
    server_app(grid, internals.context(1, {}, to_run_config(spec)))
    at = journal.load()
    return content_hash(pack(at.arrays)), at.metrics


@pytest.mark.parametrize("trainer", ["toy", "null"])
def test_the_durable_grid_makes_what_the_local_grid_makes(
    trainer: str, place: Callable[[int], Any], story: Callable[..., None]
) -> None:
    spec = RunSpec(run_id="r1", trainer=trainer, rounds=3, seed=7)  # type: ignore[arg-type]
    expected = made_locally(spec)

    async def over_the_ledger() -> None:
        here = place(len(NODES))
        async with here.open(here.fleet()) as service:
            await service.start(spec)
            assert (await service.wait("r1")).state is RunState.DONE
            last = (await service.show("r1")).versions[-1]
            assert (last.model, last.metrics) == expected

    story(over_the_ledger())


def test_names_and_order_of_nodes_change_nothing() -> None:
    spec = RunSpec(run_id="r1", trainer="toy", rounds=3)
    others = [f"site-{n}-{letter}" for n, letter in enumerate("zyxw")]

    assert made_locally(spec, others) == made_locally(spec)


def test_the_order_of_replies_changes_no_bit() -> None:
    spec = RunSpec(run_id="r1", trainer="null", rounds=3)

    class Shuffled(LocalGrid):
        """Gives replies in another order each time."""

        def pull_messages(self, message_ids: Any) -> list[Any]:
            replies = super().pull_messages(message_ids)
            random.Random(len(replies)).shuffle(replies)
            return replies

    journal = MemoryJournal(spec)
    server_app(
        Shuffled(client_app, numbered(NODES), journal=journal), internals.context(1, {}, to_run_config(spec))
    )

    at = journal.load()
    assert (content_hash(pack(at.arrays)), at.metrics) == made_locally(spec)


def test_another_seed_makes_another_model() -> None:
    made = {made_locally(RunSpec(run_id="r1", trainer="null", seed=seed))[0] for seed in (1, 2)}

    assert len(made) == 2


@pytest.mark.parametrize("strategy", ["synchronous", "buffered"])
def test_training_helps(strategy: str) -> None:
    losses = [
        made_locally(RunSpec(run_id="r1", trainer="toy", rounds=rounds, strategy=strategy))[1]["loss"]  # type: ignore[arg-type]
        for rounds in (1, 6)
    ]

    assert losses[1] < losses[0] / 5


def test_a_specification_survives_flowers_flat_configuration() -> None:
    spec = RunSpec(run_id="r1", trainer="null", rounds=5, quorum=3, seed=9, config={"size": 12, "noise": 0.5})

    assert from_run_config(to_run_config(spec)) == spec
