"""A real coordinator, a real agent and a real broker: a policy from its file to the decisions it makes."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random

import pytest

from cloud_coordinator.api.office import Office
from cloud_coordinator.rollout.values import PolicyVersion, RolloutSpec, RolloutState, VersionState
from cloud_coordinator.service import running
from cloud_coordinator.settings import ApiSettings, CoordinatorSettings, PolicyTable, RulesTable
from edge_agent.enrol import enrol
from edge_agent.runtime import Agent
from edge_agent.runtime_build import open_parts
from edge_agent.settings import AgentSettings, NodeSettings, RulesSettings
from policy.linear import write_linear
from skerry.cli.demo.brokers import RunningBroker, find_mosquitto, start_broker
from skerry.endpoint import Endpoint
from skerry.errors import PolicyError
from skerry.fleet_documents import TokenMade
from skerry.http import HttpConnection
from skerry.identity import PrivateKey
from skerry.policy_manifest import Comparison, EvaluationSummary, PolicyManifest
from skerry.task import CommandSpec, TaskSpec
from task_queue.operations import Enqueued

pytestmark = pytest.mark.mosquitto
PATIENCE_S = 60.0
CLAIM = EvaluationSummary(
    seed=1,
    comparisons=(
        Comparison(
            devices=8, scenarios=8, against="full-cost", cost=0.2, other_cost=0.3, ratio=0.7, low=0.6,
            high=0.8, wins=0.9,
        ),
    ),
)  # fmt: skip
QUICK = {
    "shadow_decisions": 3.0,
    "block_decisions": 1.0,
    "burn_in_decisions": 0.0,
    "canary_blocks": 2.0,
    "stage_cells": 2.0,
    "least_cells": 1.0,
    "slow_ms": 5000.0,  # a busy machine is no fault of the policy
}


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[RunningBroker]:
    if find_mosquitto() is None:
        pytest.skip("mosquitto is not installed")
    started = start_broker(tmp_path / "broker", prefer="mosquitto")
    yield started
    started.stop()


@asynccontextmanager
async def agent_of(settings: AgentSettings) -> AsyncIterator[Agent]:
    """Run an agent for the block; stopped in order."""
    parts = open_parts(settings, rng=Random(1))
    agent = Agent(parts)
    agent.start()
    try:
        yield agent
        agent.request_stop(0.0)
        await agent.wait_stopped()
    finally:
        await agent.close()
        parts.lock.release()


async def until(what: Callable[[], bool]) -> None:
    """Wait until something holds."""
    deadline = time.monotonic() + PATIENCE_S
    while not what():
        assert time.monotonic() < deadline, "it did not happen in time"
        await asyncio.sleep(0.02)  # polling another thread and another process


def store(office: Office, path: Path, name: str) -> None:
    """Put a file into the coordinator's content store."""
    with office.blobs.receive(name) as sink:
        sink.write(path.read_bytes())
        sink.commit()


async def bring(office: Office, path: Path, manifest: PolicyManifest) -> PolicyVersion:
    """What `skerry policy push` does, until the version was vetted."""
    await asyncio.to_thread(store, office, path, manifest.file_hash)
    version = await office.policies.add(manifest, by="test")
    deadline = time.monotonic() + PATIENCE_S
    while version.state is VersionState.VETTING and time.monotonic() < deadline:
        await asyncio.sleep(0.1)  # polling the child that evaluates it
        version = await office.policies.version(manifest.file_hash)
    return version


async def run_tasks(agent: Agent, count: int) -> list[str]:
    """Run tasks one after the other; return who decided each."""
    deciders = []
    for _ in range(count):
        task = TaskSpec(spec=CommandSpec(argv=("true",)), deadline_s=30.0)
        accepted = await agent.submit(task)
        assert isinstance(accepted, Enqueued)
        record = await agent.wait(accepted.task_id, PATIENCE_S)
        assert record is not None
        assert record.attempts
        decision = record.attempts[-1].decision
        assert decision is not None
        deciders.append(decision.decided_by)
    return deciders


def test_a_policy_goes_from_its_file_to_the_decisions_of_a_node(
    broker: RunningBroker, tmp_path: Path
) -> None:
    key = PrivateKey.generate()
    policies = PolicyTable(
        signers=(key.public_hex,), against="full-cost", beats_below=10.0, devices="8", scenarios=4
    )
    cloud = CoordinatorSettings(
        data_dir=str(tmp_path / "cloud"),
        fleet="test",
        api=ApiSettings(listen="127.0.0.1:0"),
        mqtt=broker.settings,
        rules=RulesTable(enabled=False),
        policies=policies,
    )
    edge = AgentSettings(
        data_dir=str(tmp_path / "edge"),
        node=NodeSettings(name="edge-1", region="north"),
        rules=RulesSettings(enabled=False),
    )
    good = tmp_path / "good.onnx"
    papers = write_linear(good, {"increase": -1.0}, key=key, evaluation=CLAIM)

    async def story() -> None:
        async with running(cloud) as office:
            await asyncio.to_thread(enrol_with, edge, office)
            await refusals(office)
            version = await bring(office, good, papers)
            assert version.state is VersionState.READY, version.reason
            async with agent_of(edge) as agent:
                await through(office, agent)
        async with agent_of(edge) as alone:  # the coordinator is gone, and the process is another one
            await until(lambda: alone.policy_status().is_loaded)
            assert alone.policy_status().state == "full"
            assert f"policy:{papers.version}" in await run_tasks(alone, 4)

    async def refusals(office: Office) -> None:
        unsigned = write_linear(tmp_path / "u.onnx", {"finish": -1.0}, key=None, evaluation=CLAIM)
        with pytest.raises(PolicyError, match="not signed"):
            await bring(office, tmp_path / "u.onnx", unsigned)
        broken = write_linear(tmp_path / "n.onnx", {"finish": math.nan}, key=key, evaluation=CLAIM)
        refused = await bring(office, tmp_path / "n.onnx", broken)
        assert (refused.state, "not all numbers" in refused.reason) == (VersionState.REFUSED, True)
        with pytest.raises(PolicyError, match="refused"):
            await office.policies.begin(RolloutSpec(policy=broken.file_hash), by="test")

    async def through(office: Office, agent: Agent) -> None:
        await until(lambda: agent.uplink is not None and agent.uplink.phase.value == "welcomed")
        rollout = await office.policies.begin(RolloutSpec(policy=papers.file_hash, gate=QUICK), by="test")
        await until(lambda: agent.policy_status().is_loaded)
        deciders: list[str] = []
        while agent.policy_status().state != "full":
            deciders += await run_tasks(agent, 2)
            assert len(deciders) < 100
        assert deciders[0].startswith("baseline:")  # in shadow the fallback decides
        state = rollout.state
        deadline = time.monotonic() + PATIENCE_S
        while state is not RolloutState.DONE and time.monotonic() < deadline:
            await asyncio.sleep(0.05)  # polling what went over the broker
            state = (await office.policies.rollouts())[0].state
        assert state is RolloutState.DONE
        assert f"policy:{papers.version}" in await run_tasks(agent, 4)

    asyncio.run(story())


def enrol_with(edge: AgentSettings, office: Office) -> None:
    """Enrol the agent as `skerry coordinator token` and `skerry enrol` do."""
    where = Endpoint(socket=office.settings.socket_path)
    with HttpConnection(where, service="coordinator", start_hint="") as http:
        made = http.json(TokenMade, "POST", "/v1/tokens", body=b"{}")
    enrol(edge, office.http_url, made.token)
