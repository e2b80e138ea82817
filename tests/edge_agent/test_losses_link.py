"""Losses over the link of a real agent: a command that cannot be read, events that found no room."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from edge_agent.settings import AgentSettings, QueueSettings
from skerry.messages import Lane, LossReported
from task_queue import losses
from task_queue.operations import AppendOutbox
from tests.edge_agent.net import Connect, Net, is_welcomed


@pytest.fixture
def agent_settings(agent_settings: AgentSettings) -> AgentSettings:
    return msgspec.structs.replace(agent_settings, queue=QueueSettings(max_bytes=1 << 20, min_free_bytes=0))


def totals(net: Net) -> dict[tuple[str, str], int]:
    """Return the newest totals that the coordinator was told."""
    said = [row for row in net.coordinator.heard_of(LossReported) if isinstance(row, LossReported)]
    assert all(row.is_total for row in said)
    return {(row.lost_class, row.reason): row.count for row in said}


def test_what_a_node_lost_reaches_the_coordinator_as_totals(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(losses, "REPORT_EVERY_S", 0.0)  # the test has no patience

    async def story() -> tuple[dict[tuple[str, str], int], dict[tuple[str, str], int], dict[str, str]]:
        async with connect() as net:
            await net.until(lambda: is_welcomed(net))
            net.coordinator.command_raw("from.the.future", b'{"kind":"from.the.future"}')
            await net.until(lambda: ("command", "not_understood") in totals(net))
            store, loop = net.agent.parts.store, net.agent.loop
            report = AppendOutbox(lane=Lane.BACKLOG, kind="k", body=b'{"kind":"k"}' + b" " * 4000)
            while store.depth().level < 4:
                await loop.commit(*[report] * 5)
            alarms = (await net.agent.report()).alarms
            event = AppendOutbox(lane=Lane.BACKLOG, kind="decision.recorded", body=b"{}")
            await loop.commit(*[event] * 9)
            await net.until(lambda: totals(net).get(("telemetry", "refused")) == 9)
            held = {(loss.lost_class, loss.reason): loss.rows for loss in store.losses()}
            return totals(net), held, alarms

    told, held, alarms = asyncio.run(story())
    assert told == held
    assert told["command", "not_understood"] == 1
    assert "raise the queue's limit" in alarms["room"]
