"""Instructions over the link of a real agent: what a node that trains answers, and one that does not."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from edge_agent.settings import AgentSettings, TrainingSettings
from skerry.messages import FederationReply, FederationRequest
from tests.edge_agent.net import Connect, Net, is_welcomed

_CHILD = f"""#!{sys.executable}
import json, pathlib, sys
place = pathlib.Path(sys.argv[4])
one = json.loads((place / "instruction.json").read_text())["instruction"]
said = {{"instruction_id": one["id"], "run_id": one["run_id"], "node": one["node"]}}
said["base_version"] = one["version"]
(place / "reply.json").write_text(json.dumps({{**said, "inline": "dXBkYXRl", "num_examples": 2}}))
"""


@pytest.fixture
def training(tmp_path: Path, request: pytest.FixtureRequest) -> TrainingSettings:
    """As the test's parameter says: off, without an environment, or with a stand-in for one."""
    python = tmp_path / "python"
    if request.param == "here":
        python.write_text(_CHILD)
        python.chmod(0o700)
    return TrainingSettings(enabled=request.param != "off", python=str(python))


@pytest.fixture
def agent_settings(agent_settings: AgentSettings, training: TrainingSettings) -> AgentSettings:
    return msgspec.structs.replace(agent_settings, training=training)


def answer_to(connect: Connect, **fields: Any) -> tuple[FederationReply, bool, dict[str, str]]:
    """Ask the node once; return its answer, whether it says that it trains, and its alarms."""

    async def story() -> tuple[FederationReply, bool, dict[str, str]]:
        async with connect() as net:
            await net.until(lambda: is_welcomed(net))
            net.coordinator.command(request_for(net, **fields))
            await net.until(lambda: net.coordinator.heard_of(FederationReply))
            await net.until(lambda: not sum(net.agent.parts.store.depth().outbox.values()))
            (said,) = net.coordinator.heard_of(FederationReply)
            assert isinstance(said, FederationReply)
            return said, net.agent.inventory_now().can_train, net.agent.alarms_now()

    return asyncio.run(story())


def request_for(net: Net, **fields: Any) -> FederationRequest:
    model = net.agent.parts.blobs.put_bytes(b"version 0")
    values = {"instruction_id": "1" * 32, "run_id": "r1", "version": 3, "model": model, "trainer": "null"}
    return FederationRequest(**{**values, "ttl_s": 1000.0, **fields})


@pytest.mark.parametrize("training", ["here"], indirect=True)
def test_a_node_that_takes_part_answers_with_what_its_child_made(connect: Connect) -> None:
    said, can_train, alarms = answer_to(connect)

    assert (said.inline, said.num_examples, said.version, said.error) == (b"update", 2, 3, "")
    assert can_train
    assert "training" not in alarms


@pytest.mark.parametrize("training", ["off"], indirect=True)
def test_a_node_that_does_not_take_part_says_so(connect: Connect) -> None:
    said, can_train, alarms = answer_to(connect)

    assert "does not take part" in said.error
    assert not can_train
    assert "training" not in alarms


@pytest.mark.parametrize("training", ["absent"], indirect=True)
def test_a_node_without_a_training_environment_raises_an_alarm(connect: Connect) -> None:
    said, can_train, alarms = answer_to(connect)

    assert "no training environment" in said.error
    assert not can_train
    assert "no training environment" in alarms["training"]
