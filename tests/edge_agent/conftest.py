"""Real agents in temporary directories: real store, real executors, no network unless a test brings one."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest

from devices.settings import ChildSettings, DeviceSettings
from edge_agent.runtime import Agent
from edge_agent.runtime_build import open_parts
from edge_agent.settings import AgentSettings, LimitSettings, NodeSettings, RulesSettings
from skerry.identity import Enrolment, PrivateKey
from skerry.transport.memory import MemoryBroker, MemoryTransport
from skerry.transport.port import Transport
from tests.edge_agent.net import FLEET, NODE, Connect, Coordinator, Net

RunAgent = Callable[..., AbstractAsyncContextManager[Agent]]


@pytest.fixture
def agent_settings(tmp_path: Path) -> AgentSettings:
    """An agent in a directory of its own, without rules, with quick children."""
    return AgentSettings(
        data_dir=str(tmp_path / "agent"),
        node=NodeSettings(name="edge-1", region="north"),
        rules=RulesSettings(enabled=False),
        devices=DeviceSettings(cpu_slots=2, children=ChildSettings(kill_grace_s=0.2)),
        limits=LimitSettings(cpu_millicores=2000, retry_base_s=0.05, stop_grace_s=5.0),
    )


@pytest.fixture
def run_agent(agent_settings: AgentSettings) -> RunAgent:
    """Runs an agent for a block; it is stopped in order at the block's end."""

    @asynccontextmanager
    async def run(
        settings: AgentSettings | None = None, *, transport: Transport | None = None, **options: Any
    ) -> AsyncIterator[Agent]:
        parts = open_parts(settings or agent_settings, rng=Random(1), **options)
        try:
            agent = Agent(parts, transport=transport)
            agent.start()
            try:
                yield agent
                agent.request_stop(0.0)
                await agent.wait_stopped()
            finally:
                await agent.close()
        finally:
            parts.lock.release()

    return run


@pytest.fixture
def connect(run_agent: RunAgent, agent_settings: AgentSettings) -> Connect:
    """Runs an enrolled agent with its coordinator."""
    key = PrivateKey.generate()
    node_key = PrivateKey.load_or_create(agent_settings.key_path)
    Enrolment(
        fleet=FLEET,
        node=NODE,
        region="north",
        coordinator_url="http://127.0.0.1:9",  # nothing listens there: content cannot be fetched
        coordinator_public_key=key.public_hex,
        broker_url="mqtt://127.0.0.1:9",
    ).save(agent_settings.enrolment_path)
    broker = MemoryBroker()

    @asynccontextmanager
    async def net() -> AsyncIterator[Net]:
        transport = MemoryTransport(broker, client_id=NODE)
        coordinator = Coordinator(broker, key, bytes.fromhex(node_key.public_hex))
        async with run_agent(transport=transport) as agent:
            yield Net(agent, broker, coordinator)
        # A repetition on the wire is refused by design; anything else would be a fault of the uplink.
        assert set(coordinator.refused) <= {"replayed", "old_session"}

    return net
