"""The array engine by itself: seeds, batches, rewards, masks, queues and memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policy.baselines.registry import make_scheduler
from policy.objective import TERMS, ObjectiveWeights
from policy.queue_rule import QueueRule
from twin.fleet.batch import batch_of
from twin.fleet.engine import Fleet
from twin.fleet.kinds import KINDS
from twin.fleet.paired import difference, ratio, wins
from twin.fleet.play import play
from twin.fleet.queues import KEY, TASK, Queues
from twin.fleet.scenario import OFFLOAD, Scenario, draw

MIXED = Scenario(devices=(2, 14), tasks=60)
MIN_INCREASE: Any = make_scheduler("min-increase")


def test_an_episode_is_the_same_alone_and_in_any_batch() -> None:
    together = play(MIN_INCREASE, MIXED, range(12), seed=3)

    for row, number in enumerate(range(12)):
        alone = play(MIN_INCREASE, MIXED, [number], seed=3)
        assert np.array_equal(alone.finish_s[0], together.finish_s[row])
        assert np.array_equal(alone.device[0], together.device[row])
        for name, value in vars(alone.metrics()).items():
            assert value[0] == getattr(together.metrics(), name)[row], name


def test_observations_do_not_depend_on_who_shares_the_batch() -> None:
    wide, alone = Fleet(MIXED, seed=3), Fleet(MIXED, seed=3)
    wide.reset(range(12))
    alone.reset([5])

    while not alone.done:
        rows, mask, context = wide.observe()
        own_rows, own_mask, own_context = alone.observe()
        devices = own_mask.shape[1]
        assert np.array_equal(rows[5, :devices], own_rows[0])
        assert np.array_equal(mask[5, :devices], own_mask[0])
        assert not mask[5, devices:].any()
        assert np.array_equal(context[5], own_context[0])
        rewards = wide.step(MIN_INCREASE.choose_many(wide.situation(), wide.plan()).device).reward
        own = alone.step(MIN_INCREASE.choose_many(alone.situation(), alone.plan()).device).reward
        assert rewards[5] == own[0]


def test_copies_of_one_stream_differ_only_by_what_is_chosen() -> None:
    fleet = Fleet(MIXED, seed=1)
    fleet.reset([4, 4, 4])

    actions = fleet.situation().mask.argmax(axis=1)
    other = fleet.situation().mask.shape[1] - 1 - fleet.situation().mask[:, ::-1].argmax(axis=1)
    actions[2] = other[2]
    fleet.step(actions)

    rows, _, _ = fleet.observe()
    assert np.array_equal(rows[0], rows[1])
    assert not np.array_equal(rows[0], rows[2])


def test_other_seeds_and_episodes_are_other_streams() -> None:
    drawn = [draw(MIXED, seed, episode).arrival_s for seed, episode in ((1, 1), (1, 2), (2, 1))]

    assert not np.array_equal(drawn[0], drawn[1])
    assert not np.array_equal(drawn[0], drawn[2])
    assert np.array_equal(drawn[0], draw(MIXED, 1, 1).arrival_s)


@settings(max_examples=15, derandomize=True, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from(list(QueueRule)), st.sampled_from((0.0, 0.5)))
def test_rewards_sum_to_the_cost_whatever_is_chosen(seed: int, rule: QueueRule, useful: float) -> None:
    weights = ObjectiveWeights(useful=useful)
    fleet = Fleet(MIXED, seed=seed, queue_rule=rule, weights=weights)
    fleet.reset(range(3))
    rng = np.random.default_rng(seed)
    rewards, terms = np.zeros(3), np.zeros((3, len(TERMS)))

    while not fleet.done:
        mask = fleet.situation().mask
        step = fleet.step(np.where(mask, rng.random(mask.shape), -1).argmax(axis=1))
        rewards += step.reward
        terms += step.terms
        assert (step.terms >= 0).all()

    assert step.done
    found = fleet.metrics()
    assert -rewards / 60 == pytest.approx(found.cost, rel=1e-9)
    assert terms[:, 2] / 60 == pytest.approx(found.energy_j, rel=1e-9)


def test_a_masked_device_is_refused() -> None:
    fleet = Fleet(MIXED, seed=1)
    fleet.reset(range(8))
    while fleet.situation().mask.all():
        fleet.step(np.zeros(8, dtype=np.int64))
    mask = fleet.situation().mask
    row = int(np.flatnonzero(~mask.all(axis=1))[0])
    actions = mask.argmax(axis=1)
    actions[row] = int(mask[row].argmin())

    with pytest.raises(ValueError, match="masked"):
        fleet.step(actions)


def test_unsupported_pairs_are_masked_and_every_task_has_a_device() -> None:
    scenario = Scenario(devices=(2, 20), tasks=30, has_link=False)
    batch = batch_of(scenario, 9, range(30))

    kinds = np.arange(len(KINDS))
    assert batch.supported.any(axis=1).all()
    assert not batch.supported[~batch.present].any()
    tight = batch.memory_mb[..., None] < np.array([k.model_mb for k in KINDS])
    assert not (batch.supported & tight).any()
    assert (batch.unit_s[batch.supported] > 0).all()
    assert not (batch.device_class == OFFLOAD).any()
    assert not batch.supported[batch.device_class == 3][:, kinds == 4].any()


def test_devices_never_hold_more_models_than_their_memory() -> None:
    fleet = Fleet(Scenario(devices=(6, 6), tasks=80), seed=2)
    fleet.reset(range(16))
    sizes = np.array([k.model_mb for k in KINDS])
    put_out = 0
    scheduler: Any = make_scheduler("least-loaded")  # it sends any kind anywhere
    before = fleet.resident.copy()

    while not fleet.done:
        fleet.step(scheduler.choose_many(fleet.situation(), fleet.plan()).device)
        held = ((fleet.resident[..., None] >> np.arange(len(KINDS))) & 1) @ sizes
        own = fleet.batch.device_class != OFFLOAD
        assert (held[own] <= fleet.batch.memory_mb[own]).all()
        put_out += int((before & ~fleet.resident != 0).sum())
        before = fleet.resident.copy()

    assert put_out > 0


def test_bursts_wait_and_a_device_does_one_thing_at_a_time() -> None:
    fleet = play(MIN_INCREASE, Scenario(tasks=80, load_factor=1.5), range(4), seed=6)

    for row in range(4):
        for device in range(8):
            mine = np.flatnonzero(fleet.device[row] == device)
            mine = mine[np.argsort(fleet.start_s[row, mine])]
            tails = fleet.batch.tail_s[row, device, fleet.batch.kind[row, mine]]
            ends = fleet.finish_s[row, mine] - tails
            assert (fleet.start_s[row, mine[1:]] >= ends[:-1] - 1e-12).all()
            assert (fleet.start_s[row, mine] >= fleet.batch.arrival_s[row, mine]).all()
    assert (fleet.start_s > fleet.batch.arrival_s).any()


@settings(max_examples=60, derandomize=True, deadline=None)
@given(st.lists(st.one_of(st.integers(0, 5), st.none()), max_size=40))
def test_a_queue_is_a_list_kept_by_key(steps: list[int | None]) -> None:
    queues, model = Queues(2, 3), []
    e, d = np.array([1]), np.array([2])

    for turn, key in enumerate(steps):
        if key is None:
            if model:
                slot = turn % len(model)
                queues.remove(e, d, np.array([slot]))
                model.pop(slot)
            continue
        values = np.zeros((7, 1))
        values[KEY] = key
        queues.insert(e, d, values, np.array([[turn], [0]]))
        model.insert(sum(other >= key for other, _ in model), (key, turn))
        held = int(queues.length[1, 2])
        assert queues.names[TASK, :held, 1, 2].tolist() == [number for _, number in model]

    assert int(queues.length[1, 2]) == len(model) == queues.longest
    assert np.isneginf(queues.values[KEY, len(model) :, 1, 2]).all()
    assert int(queues.length.sum()) == len(model)


def test_paired_figures_notice_a_small_gap_that_unpaired_ones_would_miss() -> None:
    rng = np.random.default_rng(1)
    theirs = rng.lognormal(0, 1, size=300)
    ours = theirs * 0.97

    gap = difference(ours, theirs)

    assert gap.high < 0
    assert ratio(ours, theirs).value == pytest.approx(0.97)
    assert ratio(ours, theirs).high < 1
    assert ratio(theirs, theirs).low == ratio(theirs, theirs).high == 1
    assert wins(ours, theirs) == 1
