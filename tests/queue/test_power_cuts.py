"""Power cuts, simulated: un-synced writes are lost whole, in part or at random, and every promise is kept.

The counts of docs/evidence/power-cuts.json come from the same code: `python -m tests.chaos.power_cuts`.
"""

from __future__ import annotations

import random
import typing
from pathlib import Path

import pytest

from skerry.testing import ManualClock
from task_queue.operations import Operation
from task_queue.testing import memory_opener
from tests.chaos.power_cuts import Bout, lossy_bench, run_bout
from tests.queue.histories import History


@pytest.mark.parametrize("seed", range(3))
def test_no_power_cut_loses_damages_or_halves_what_was_acknowledged(tmp_path: Path, seed: int) -> None:
    bout = run_bout(tmp_path, seed=seed, points=20)

    assert bout.points == 20
    assert bout.keeps_its_promises, bout
    assert set(bout.moments) >= {"write", "sync"}


def test_a_power_cut_while_a_queue_is_made_leaves_what_can_be_opened(tmp_path: Path) -> None:
    with lossy_bench(tmp_path, Bout(seed=1, synchronous="full")) as bench:
        opened = list(bench.births(every=4))

    assert len(opened) > 20, "the first opening has more steps"
    assert all(opened)


def test_the_simulation_catches_a_store_that_does_not_sync_its_commits(tmp_path: Path) -> None:
    bout = run_bout(tmp_path, seed=1, points=12, synchronous="normal")

    assert bout.states_that_lost, "the control must lose something, or the test above proves nothing"
    assert (bout.damaged, bout.unknown) == (0, 0), bout


def test_histories_reach_every_operation_that_a_queue_knows() -> None:
    clock = ManualClock()
    store = memory_opener()(clock)
    history = History(clock, random.Random(1))

    for _ in range(1500):
        history.hear(store.apply(history.propose(), now=clock.now()))

    assert set(history.performed) == set(typing.get_args(Operation))
