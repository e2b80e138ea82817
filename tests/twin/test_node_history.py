"""What the policy sees on a node is what it saw in training: agent and engine go through one history."""

from __future__ import annotations

import numpy as np
import pytest

from devices.port import Report
from edge_agent.decider import PolicyDecider
from edge_agent.testing import Behaviour, Disk, World
from policy.features import CANDIDATE_FEATURES, features_of
from policy.guard.without_engine import AllowAll
from policy.history import History, after_choice, after_run
from policy.objective import priority_weight
from policy.port import Choice, DeviceView
from policy.profile import RuntimeProfile
from policy.queue_rule import QueueRule
from policy.testing import a_device, a_model_task
from skerry.task import TaskSpec
from twin.fleet.batch import stack
from twin.fleet.engine import Fleet
from twin.fleet.kinds import KINDS
from twin.fleet.scenario import Episode, Scenario

TASKS = 40
POWER_W = np.array([3.0, 5.0])
UNIT_S = np.array([0.2, 0.5])
LOAD_S = np.array([0.8, 0.3])
DEVICES = tuple(a_device("npu", f"npu-{n}", power_w=float(POWER_W[n])) for n in range(2))
DEADLINE_S = 0.7


def an_episode(seed: int) -> Episode:
    """One kind on two boards, with arrivals that come while the last task still runs or just after."""
    rng = np.random.default_rng(seed)
    table = np.ones((2, len(KINDS)))
    return Episode(
        device_class=np.array([2, 2]),
        unit_s=table * UNIT_S[:, None],
        supported=table > 0,
        tail_s=table * 0.0,
        unit_j=table * (UNIT_S * POWER_W)[:, None],
        load_s=table * LOAD_S[:, None],
        load_j=table * (0.5 * POWER_W * LOAD_S)[:, None],
        memory_mb=np.full(2, 1e12),
        resident=np.zeros(2, dtype=np.int64),
        arrival_s=np.cumsum(rng.uniform(0.3, 1.5, TASKS)),
        kind=np.zeros(TASKS, dtype=np.int64),
        size=np.ones(TASKS),
        priority=np.full(TASKS, 5),
        weight=np.full(TASKS, priority_weight(5)),
        deadline_s=np.full(TASKS, DEADLINE_S),
        noise=rng.lognormal(0.0, 0.3, TASKS),
    )


def an_engine(episode: Episode) -> Fleet:
    fleet = Fleet(Scenario(tasks=TASKS), queue_rule=QueueRule.FIFO)
    fleet.start(stack([episode]))
    return fleet


def some_choices(seed: int) -> list[int]:
    """Which board each task goes to: the first more often, so that the two have different histories."""
    return [int(one) for one in np.random.default_rng(seed).uniform(size=TASKS) > 0.65]


def test_the_figures_of_a_history_are_the_engines_to_the_last_bit() -> None:
    episode = an_episode(7)
    fleet = an_engine(episode)
    kept = [History(), History()]
    settled = 0.0

    for at, chosen in zip(episode.arrival_s, some_choices(7), strict=True):
        free_at = fleet.finish_s[0]
        over = [k for k in np.argsort(free_at) if settled < free_at[k] <= at]
        for task in over:
            due = episode.arrival_s[task] + DEADLINE_S
            d = fleet.device[0, task]
            kept[d] = after_run(kept[d], ratio=float(episode.noise[task]), has_missed=free_at[task] > due)
        settled = at
        there = fleet.situation()
        assert [one.prediction for one in kept] == there.prediction[0].tolist()
        assert [one.share for one in kept] == there.recent_share[0].tolist()
        assert [one.misses for one in kept] == there.recent_misses[0].tolist()
        kept = [after_choice(one, is_chosen=d == chosen) for d, one in enumerate(kept)]
        fleet.step(np.array([chosen]))

    assert all(one.misses > 0 and one.share > 0 and one.prediction != 1.0 for one in kept)


class _Told:
    """Chooses what the engine was told to choose, and keeps what it saw."""

    name = "told"

    def __init__(self) -> None:
        self.index = 0
        self.seen: list[DeviceView] = []

    def choose(self, task: TaskSpec, devices: list[DeviceView], runtime_s: list[float]) -> Choice:
        self.seen = list(devices)
        return Choice(index=self.index, reason="told", scores=(0.0, 0.0), expected_s=(0.0, 0.0))


def a_world(episode: Episode, told: _Told) -> World:
    """An agent whose boards take as long, and load as long, as the engine's; its run times are known."""
    task = a_task()
    profile = RuntimeProfile()
    loaded: set[str] = set()

    def behave(begun: TaskSpec, _fence: object, device: str) -> Behaviour:
        number, d = int(begun.tenant), int(device.removeprefix("npu-"))
        load_s = 0.0 if device in loaded else float(LOAD_S[d])
        loaded.add(device)
        takes_s = load_s + float(UNIT_S[d] * episode.noise[number])
        report = Report(status="succeeded", runtime_s=takes_s, load_s=load_s, loaded=(model_of(task),))
        return Behaviour(takes_s=takes_s, report=report)

    decide = PolicyDecider(AllowAll(), told, profile, lambda: 2e9)
    world = World(Disk().open, devices=DEVICES, decide=decide, behave=behave)
    for d, device in enumerate(DEVICES):
        profile.observe(task.kind, device, float(UNIT_S[d]))
        profile.observe_load(model_of(task), device, float(LOAD_S[d]))
    world.content = {model_of(task): ""}
    return world


def a_task(**fields: str) -> TaskSpec:
    return a_model_task(deadline_s=DEADLINE_S, **fields)


def model_of(task: TaskSpec) -> str:
    return task.spec.model  # type: ignore[union-attr]


@pytest.mark.parametrize("seed", [7, 8, 9])
def test_a_node_with_the_same_history_shows_the_policy_the_same_numbers(seed: int) -> None:
    episode = an_episode(seed)
    fleet, told = an_engine(episode), _Told()
    world = a_world(episode, told)
    begin_s = world.clock.uptime_s

    for number, at in enumerate(episode.arrival_s):
        told.index = some_choices(seed)[number]
        world.run_for(begin_s + float(at) - world.clock.uptime_s)
        world.submit(a_task(tenant=str(number)))
        world.settle()
        rows, _, context = fleet.observe()
        own_rows, own_context = features_of(a_task(), told.seen, UNIT_S.tolist())
        for name, own, engines in zip(CANDIDATE_FEATURES, own_rows.T, rows[0].T, strict=True):
            assert own == pytest.approx(engines, abs=1e-4), (number, name)
        assert own_context == pytest.approx(context[0], abs=1e-4)
        fleet.step(np.array([told.index]))

    assert {view.resident for view in told.seen} == {(model_of(a_task()),)}
    world.store.close()
