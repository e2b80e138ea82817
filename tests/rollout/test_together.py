"""Coordinator and nodes together in memory: the rollout's core, the agent's policy core, trial and gate."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

import pytest

from cloud_coordinator.rollout.values import RolloutState, VersionState
from policy.baselines.shortest_expected_completion import ShortestExpectedCompletion
from policy.gate.state import Stage
from policy.port import Choice, DeviceView
from skerry.messages import ActivatePolicy
from skerry.policy_manifest import encode_manifest
from skerry.task import TaskSpec
from tests.rollout.fleet import KEY, Coordinator, a_manifest
from tests.rollout.node import TASK, EdgeNode, Ruled

QUICK = {"shadow_decisions": 10.0, "block_decisions": 3.0, "burn_in_decisions": 1.0, "stage_cells": 12.0}
ECT = ShortestExpectedCompletion()


def equal(views: Sequence[DeviceView], runtime_s: Sequence[float]) -> int:
    return ECT.choose(TASK, views, runtime_s).index


def a_hash(digit: str) -> str:
    return f"sha256:{digit * 64}"


class NotNumbers(Ruled):
    """A policy whose scores are none."""

    def choose(self, task: TaskSpec, devices: Sequence[DeviceView], runtime_s: Sequence[float]) -> Choice:
        """Return NaN for each."""
        scores = tuple(math.nan for _ in devices)
        return Choice(index=0, reason="", scores=scores, expected_s=tuple(runtime_s))


class World:
    """A coordinator and its nodes, with messages carried between them at once."""

    def __init__(self, **policies: Ruled | str) -> None:
        """policies: first digit of the file's hash → the policy behind it."""
        self.there = Coordinator("n1", "n2", "n3")
        known = {a_hash(digit): policy for digit, policy in policies.items()}
        self.nodes = {
            name: EdgeNode(name, KEY.public_hex, known, seed) for seed, name in enumerate(self.there.fleet)
        }
        self._taken = dict.fromkeys(self.there.fleet, 0)

    def carry(self) -> None:
        """Bring orders to connected nodes and their words back, until nobody says anything."""
        for _ in range(10):
            for name, node in self.nodes.items():
                if not self.there.fleet[name]:
                    continue
                orders = self.there.told[name][self._taken[name] :]
                self._taken[name] += len(orders)
                for order in orders:
                    node.order(order)
                for said in node.said():
                    self.there.rollouts.reported(name, said, self.there.at, self.there.fleet, self.there.tell)

    def run(self, rounds: int = 200, tasks: int = 10) -> None:
        """Let tasks arrive everywhere and time pass, until the rollout has ended."""
        for _ in range(rounds):
            for node in self.nodes.values():
                node.work(tasks)
            self.carry()
            self.there.wait(10)
            self.carry()
            if self.there.rollouts.book.active is None:
                return


def test_an_equal_policy_reaches_every_node_and_decides_there() -> None:
    world = World(a=Ruled("a", equal))
    world.there.add("a")
    world.there.start("a", gate=QUICK)
    world.run()
    world.run(rounds=3)

    assert world.there.only.state is RolloutState.DONE
    assert world.nodes["n1"].core.gate.state.stage is Stage.FULL
    assert {node.core.state for node in world.nodes.values()} <= {"shadow", "canary", "partial", "full"}
    assert "policy:a" in world.nodes["n1"].decided_by


def test_a_plausible_but_worse_policy_is_rolled_back_everywhere() -> None:
    rng = random.Random(5)

    def often_wrong(views: Sequence[DeviceView], runtime_s: Sequence[float]) -> int:
        return rng.randrange(len(views)) if rng.random() < 0.5 else equal(views, runtime_s)

    world = World(a=Ruled("a", equal), b=Ruled("b", often_wrong))
    world.there.add("a")
    world.there.start("a", gate=QUICK)
    world.run()
    world.there.add("b")
    world.there.start("b", gate={**QUICK, "stage_cells": 200.0}, canaries=("n2",))
    world.run(rounds=400)

    rollout = world.there.rollouts.book.rollout("r2")
    assert rollout.state is RolloutState.ROLLED_BACK
    assert world.there.rollouts.book.version("b" * 12).state is VersionState.WITHDRAWN
    assert {node.core.held.policy for node in world.nodes.values()} == {a_hash("a")}
    world.nodes["n2"].work(5)
    assert "policy:b" not in world.nodes["n2"].decided_by[-5:]


def test_a_policy_without_numbers_decides_nothing_and_is_rolled_back() -> None:
    world = World(a=NotNumbers("a", equal))
    world.there.add("a")
    world.there.start("a", gate=QUICK)
    world.run()

    assert world.there.only.state is RolloutState.ROLLED_BACK
    assert all("policy:a" not in node.decided_by for node in world.nodes.values())
    assert "3 failed decisions, the last: a score is not a number" in world.there.only.reason


def test_a_file_that_the_node_refuses_ends_the_rollout() -> None:
    world = World(a="weights w1 are not all numbers")
    world.there.add("a")
    world.there.start("a")
    world.run()

    assert world.there.only.state is RolloutState.ROLLED_BACK
    assert world.nodes["n1"].core.state == "off"


@pytest.mark.parametrize("change", ["unsigned", "foreign", "altered", "no manifest at all"])
def test_a_node_takes_no_papers_that_its_coordinator_did_not_sign(change: str) -> None:
    import msgspec

    from skerry.identity import PrivateKey
    from skerry.policy_manifest import sign_manifest

    manifest = a_manifest("a")
    papers = {
        "unsigned": encode_manifest(msgspec.structs.replace(manifest, signer="", signature="")).decode(),
        "foreign": encode_manifest(sign_manifest(manifest, PrivateKey.generate())).decode(),
        "altered": encode_manifest(msgspec.structs.replace(manifest, file_bytes=7)).decode(),
        "no manifest at all": "{}",
    }[change]
    node = EdgeNode("n1", KEY.public_hex, {a_hash("a"): Ruled("a", equal)}, seed=1)
    node.order(ActivatePolicy(rollout="r1", manifest=papers))
    node.work(30)
    (report,) = node.said()

    assert report.state == "refused"  # type: ignore[union-attr]
    assert report.reason
    assert not any(name.startswith("policy:") for name in node.decided_by)


def test_a_cut_off_node_rolls_back_by_itself_and_says_so_later() -> None:
    slowest = Ruled("a", lambda views, run: run.index(max(run)))
    world = World(a=slowest)
    world.there.add("a")
    world.there.start("a", gate={**QUICK, "implausible_cost": 1000.0})
    world.carry()
    world.there.leave("n1")
    world.there.wait(20)
    node = world.nodes["n1"]
    while node.core.gate.has_candidate:
        node.work(10)
    assert world.there.only.state is RolloutState.PAUSED
    assert node.core.gate.state.stage is Stage.ROLLED_BACK
    node.said()  # committed before the process ends
    node.restart()
    node.work(50)
    assert node.decided_by[-50:] == ["baseline:shortest-expected-completion"] * 50

    world.there.come_back("n1")
    world.carry()
    assert world.there.only.state is RolloutState.ROLLED_BACK


def test_a_restart_in_mid_trial_goes_on_where_it_was() -> None:
    world = World(a=Ruled("a", equal))
    world.there.add("a")
    world.there.start("a", gate=QUICK)
    world.carry()
    node = world.nodes["n1"]
    while node.core.gate.state.stage is not Stage.PARTIAL:
        node.work(5)
        world.carry()
    node.core.stopped()
    node.said()
    cells = node.core.gate.state.cells_begun
    node.restart()

    assert node.core.state == "partial"
    assert node.core.gate.state.cells_begun == cells
    world.run()
    assert world.there.only.state is RolloutState.DONE


def test_the_same_order_twice_changes_nothing_and_is_answered() -> None:
    node = EdgeNode("n1", KEY.public_hex, {a_hash("a"): Ruled("a", equal)}, seed=1)
    order = ActivatePolicy(rollout="r1", manifest=encode_manifest(a_manifest("a")).decode())
    node.order(order)
    node.work(30)
    node.said()
    gate = node.core.gate
    node.order(order)
    (answer,) = node.said()

    assert node.core.gate is gate
    assert answer.state == gate.state.stage.value  # type: ignore[union-attr]


def test_a_policy_that_ends_the_agent_whenever_it_is_loaded_is_given_up() -> None:
    node = EdgeNode("n1", KEY.public_hex, {a_hash("a"): Ruled("a", equal)}, seed=1)
    node.order(ActivatePolicy(rollout="r1", manifest=encode_manifest(a_manifest("a")).decode()))
    node.said()
    deaths = 0
    while node.core.needs_file:
        node.restart()  # and again it dies before it has compared anything
        deaths += 1

    assert deaths == 4
    node.said()
    assert node.core.state == "rolled_back"
    assert "died 3 times" in node.core.gate.state.reason
