"""A coordinator's rounds with a fleet in memory, real workers, real files."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from federation.flower.client_runner import ClientRunner
from federation.grid.local import numbered
from federation.rounds.service import RoundService
from federation.rounds.sqlite import sqlite_ledger
from federation.rounds.supervisor import WorkerCommand
from federation.rounds.testing import Answer, MemoryFleet
from federation.values import Instruction, Reply
from skerry.blobs import BlobStore

ROOT = Path(__file__).resolve().parents[2]
#: How long a condition may take on a busy machine.
PATIENCE_S = 60.0


class Place:
    """Where a coordinator keeps its rounds: outlives each service opened on it."""

    def __init__(self, directory: Path, nodes: Iterable[str]) -> None:
        """Make it with these nodes, numbered as a simulation numbers them."""
        self.directory = directory
        self.blobs = BlobStore(directory / "blobs", 1 << 30)
        self.configs = numbered(nodes)
        self._runners: dict[str, ClientRunner] = {}

    def honest(self, instruction: Instruction) -> Reply:
        """Train as the instruction says."""
        name = instruction.node
        runner = self._runners.setdefault(name, ClientRunner(name, self.configs[name]))
        reply, packet = runner.run(instruction, self.blobs.path(instruction.model).read_bytes())
        if packet:
            self.blobs.put_bytes(packet)
        return reply

    def fleet(self, **answers: Answer) -> MemoryFleet:
        """A fleet of honest nodes, but for those named."""
        return MemoryFleet({name: answers.get(name, self.honest) for name in self.configs})

    @asynccontextmanager
    async def open(self, fleet: MemoryFleet, **settings: Any) -> AsyncIterator[RoundService]:
        """Serve rounds inside the block, as one life of a coordinator does."""
        service = RoundService(
            ledger=sqlite_ledger(self.directory / "rounds.db"),
            blobs=self.blobs,
            courier=fleet,
            roster=fleet,
            worker=WorkerCommand(python=Path(sys.executable), directory=ROOT, **settings),
            directory=self.directory,
        )
        fleet.service = service
        await service.open()
        try:
            yield service
        finally:
            await service.close()
            await fleet.settle()


@pytest.fixture
def place(tmp_path: Path) -> Callable[[int], Place]:
    """A place with so many nodes: n0, n1, …"""
    return lambda count: Place(tmp_path, [f"n{n}" for n in range(count)])


def run_async(story: Coroutine[Any, Any, None]) -> None:
    """Run a story with an end to patience."""
    asyncio.run(asyncio.wait_for(story, PATIENCE_S))


async def until(condition: Callable[[], Coroutine[Any, Any, bool]]) -> None:
    """Return when the condition holds: looks again until the test's time is over."""
    while not await condition():  # noqa: ASYNC110  # another process does what is waited for: it wakes nobody
        await asyncio.sleep(0.02)


@pytest.fixture
def story() -> Callable[[Coroutine[Any, Any, None]], None]:
    """Runs a coroutine to its end."""
    return run_async


@pytest.fixture
def eventually() -> Callable[[Callable[[], Coroutine[Any, Any, bool]]], Coroutine[Any, Any, None]]:
    """Waits for a condition."""
    return until


@pytest.fixture
def changed() -> Callable[..., Reply]:
    """A reply with other fields."""
    return replace
