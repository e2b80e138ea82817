"""A rehearsal of a device's own outage, from the directory of an agent that has really worked."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from random import Random

import msgspec
import pytest
from typer.testing import CliRunner

from devices.settings import DeviceSettings
from edge_agent.runtime import Agent
from edge_agent.runtime_build import open_parts
from edge_agent.settings import AgentSettings, NodeSettings, RulesSettings
from skerry.cli import app
from skerry.errors import SpecError
from skerry.task import CommandSpec, Resources, TaskSpec
from twin.faithful.rehearse import Outage, in_words, rehearse
from twin.faithful.rehearse_device import TakenDevice, take_device


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> AgentSettings:
    """Of an agent that has run twelve real commands of two kinds, and stopped."""
    settings = AgentSettings(
        data_dir=str(tmp_path_factory.mktemp("agent") / "data"),
        node=NodeSettings(name="edge-7", region="north"),
        rules=RulesSettings(enabled=False),
        devices=DeviceSettings(cpu_slots=2),
    )
    asyncio.run(_work(settings))
    return settings


async def _work(settings: AgentSettings) -> None:
    parts = open_parts(settings, rng=Random(1))
    agent = Agent(parts)
    agent.start()
    for number in range(12):
        task = TaskSpec(
            spec=CommandSpec(argv=("sh", "-c", "echo done; sleep 0.02"), stdin="x" * 300),
            kind="weigh" if number % 3 else "count",
            resources=Resources(cpu_millicores=100, memory_bytes=1 << 24),
        )
        answer = await agent.submit(task)
        await agent.wait(answer.task_id, 30.0)  # type: ignore[arg-type, union-attr] # it is accepted
    agent.request_stop(0.0)
    await agent.wait_stopped()
    await agent.close()
    parts.lock.release()


@pytest.fixture(scope="module")
def device(settings: AgentSettings) -> TakenDevice:
    return take_device(settings, rate_per_s=0.5)


def test_kinds_shares_sizes_and_run_times_are_those_of_the_queue(device: TakenDevice) -> None:
    weigh, count = device.loads

    assert (device.node, device.region, device.sample) == ("edge-7", "north", 12)
    assert (weigh.kind, count.kind) == ("weigh", "count")
    assert weigh.rate_per_s == pytest.approx(2 * count.rate_per_s)
    assert weigh.rate_per_s + count.rate_per_s == pytest.approx(0.5)
    assert 0.02 <= weigh.runtime_s[0] <= weigh.runtime_s[1] < 5.0
    assert weigh.payload_bytes > 300
    assert all(one.emulated for one in device.devices)


def test_a_rehearsal_tells_what_would_happen_and_keeps_the_laws(device: TakenDevice, tmp_path: Path) -> None:
    came = rehearse(device, Outage(hours=0.3, restart_after_h=(0.15,)), home=tmp_path)

    assert (came.lost, came.done_twice, came.broken) == (0, 0, ())
    assert 400 < came.submitted < 700
    assert came.submitted == came.done
    assert came.unsent_at_return >= came.done_alone > 400
    assert came.drained_s is not None
    assert came.bytes_at_return > came.held_bytes > 0
    assert came.refused_after_h is None
    assert "nothing was lost and nothing took effect twice" in in_words(came)[-1]


def test_a_queue_that_is_too_small_refuses_and_says_from_which_hour_on(
    device: TakenDevice, tmp_path: Path
) -> None:
    small = msgspec.structs.replace(device.limits, max_bytes=device.held_bytes + (2 << 20))
    loads = tuple(msgspec.structs.replace(load, result_bytes=8000) for load in device.loads)
    queue = msgspec.structs.replace(device, limits=small, loads=loads)

    came = rehearse(queue, Outage(hours=0.3), home=tmp_path)

    assert came.refused_after_h is not None
    assert 0 < came.refused_after_h < 0.3
    assert came.lost == 0
    assert f"refuse tasks from hour {came.refused_after_h:g} on" in in_words(came)[2]


def test_without_a_rate_there_is_nothing_to_rehearse(tmp_path: Path) -> None:
    settings = AgentSettings(data_dir=str(tmp_path), rules=RulesSettings(enabled=False))
    parts = open_parts(settings, rng=Random(1))
    parts.writer.close()
    parts.store.close()
    parts.lock.release()

    with pytest.raises(SpecError, match="--rate"):
        take_device(settings)


def test_the_command_rehearses_the_agent_in_a_directory(settings: AgentSettings) -> None:
    words = ["twin", "rehearse", "--data-dir", settings.data_dir, "--hours", "0.1", "--rate", "0.5", "--json"]

    result = CliRunner().invoke(app, words)

    came = json.loads(result.stdout)
    assert result.exit_code == 0
    assert (came["lost"], came["done_twice"], came["violations"]) == (0, 0, 0)
    assert came["kinds"] == ["weigh", "count"]
