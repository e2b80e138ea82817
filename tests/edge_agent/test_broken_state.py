"""Whatever becomes of one file in an agent's directory, it starts, and as the node that it was."""

from __future__ import annotations

import asyncio
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from edge_agent.runtime_build import Parts, open_parts
from edge_agent.settings import AgentSettings, TrainingSettings
from skerry.identity import Enrolment, PrivateKey
from skerry.task import CommandSpec, TaskSpec
from tests.edge_agent.conftest import RunAgent

ENROLMENT = Enrolment(
    fleet="fleet",
    node="edge-7",
    region="north",
    coordinator_url="http://127.0.0.1:9",
    coordinator_public_key="ab" * 32,
    broker_url="mqtt://127.0.0.1:9",  # the discard port: nothing listens
    broker_username="edge-7",
    broker_password="a word",
)


def gone(path: Path) -> None:
    path.unlink()


def empty(path: Path) -> None:
    path.write_bytes(b"")


def zeros(path: Path) -> None:
    path.write_bytes(bytes(path.stat().st_size))


def half(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


@pytest.fixture
def settings(agent_settings: AgentSettings, run_agent: RunAgent) -> AgentSettings:
    """An enrolled agent that has lived for a moment."""
    training = TrainingSettings(enabled=True, python=sys.executable)
    settings = msgspec.structs.replace(agent_settings, training=training)
    PrivateKey.load_or_create(settings.key_path, is_kept_twice=True)
    ENROLMENT.save(settings.enrolment_path)
    settings.password_path.write_text("a word\n")

    async def live() -> None:
        async with run_agent(settings) as agent:
            await agent.submit(TaskSpec(spec=CommandSpec(argv=("true",))))

    asyncio.run(live())
    return settings


@pytest.mark.parametrize("damage", [gone, empty, zeros, half])
def test_it_starts_as_the_node_that_it_was(
    settings: AgentSettings, tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    home = settings.home
    files = sorted(path.relative_to(home) for path in home.rglob("*") if path.is_file())
    public = PrivateKey.load_or_create(settings.key_path, is_kept_twice=True).public_hex
    assert len(files) >= 8

    for file in files:
        there = tmp_path / "damaged" / str(file).replace("/", "-")
        shutil.copytree(home, there)
        damage(there / file)
        moved = msgspec.structs.replace(settings, data_dir=str(there))
        parts = open_parts(moved)
        try:
            assert who_it_is(parts) == (ENROLMENT, public), file
            if damage is not half:  # a part of a word is a word that people may have written
                assert moved.password_path.read_text() == "a word\n"
        finally:
            parts.writer.close()
            parts.store.close()
            parts.lock.release()


def who_it_is(parts: Parts) -> tuple[Enrolment | None, str]:
    return parts.enrolment, parts.key.public_hex if parts.key else ""
