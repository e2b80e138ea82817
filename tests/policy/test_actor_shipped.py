"""The policy that ships is sound, decides alone as it does for many, and beats the rule it falls back to."""

from __future__ import annotations

import numpy as np
import pytest

from federation.evaluation import evaluate, figures
from policy.actor import Actor, load_actor
from policy.baselines.min_increase import MinIncrease
from policy.features import SCHEMA_HASH
from policy.port import Scheduler
from policy.shipped import SHIPPED_FILE, SHIPPED_HASHES
from policy.situation import ManyScheduler
from skerry.policy_manifest import Comparison
from twin.fleet.oracle import Oracle
from twin.fleet.play import play
from twin.fleet.scenario import Scenario, draw


@pytest.fixture(scope="module")
def actor() -> Actor:
    found = load_actor(SHIPPED_FILE)
    assert isinstance(found, Actor), found
    return found


def against(actor: Actor, devices: int, rival: str) -> Comparison:
    """What the manifest says."""
    return next(
        one for one in actor.manifest.evaluation.comparisons if (one.devices, one.against) == (devices, rival)
    )


def test_it_is_known_by_its_hash_and_says_how_to_make_it_again(actor: Actor) -> None:
    assert actor.manifest.file_hash in SHIPPED_HASHES
    assert actor.manifest.schema_hash == SCHEMA_HASH
    assert actor.manifest.lineage.command.startswith("skerry policy train --seed ")


def test_its_papers_hold_what_was_promised(actor: Actor) -> None:
    assert against(actor, 8, "full-cost").scenarios >= 200
    assert against(actor, 8, "full-cost").ratio <= 0.78
    assert against(actor, 8, "min-increase").high < 1.0


def test_its_papers_can_be_checked(actor: Actor) -> None:
    found = evaluate(actor, devices=(8,), scenarios=24)

    rule = next(one for one in found.comparisons if one.against == "min-increase")
    # Few scenarios say little; they are the first of those in its papers, and must not contradict them.
    assert rule.low < against(actor, 8, "min-increase").ratio < rule.high


def test_it_fits_both_forms_of_a_scheduler(actor: Actor) -> None:
    single: Scheduler = actor
    many: ManyScheduler = actor

    assert single.name == many.name == f"policy:{actor.manifest.version}"


@pytest.mark.parametrize("seed", range(4))
def test_one_by_one_it_decides_as_for_many(actor: Actor, seed: int) -> None:
    scenario = Scenario(devices=(3, 9), tasks=60)

    fleet = play(actor, scenario, range(2), seed=seed)

    for row in range(2):
        ended = Oracle(draw(scenario, seed, row), actor.choose, actor.queue_rule).run()
        assert [one.device for one in ended] == fleet.device[row].tolist()
        np.testing.assert_array_equal([one.finish_s for one in ended], fleet.finish_s[row])


def test_it_differs_from_its_fallback(actor: Actor) -> None:
    own, rule = (figures(one, 8, 4) for one in (actor, MinIncrease()))

    assert (own.cost != rule.cost).all()
