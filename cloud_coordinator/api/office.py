"""What the handlers work with. Owns nothing; every part has its owner elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from aiohttp import web

from cloud_coordinator.api.pace import Pace
from cloud_coordinator.core.core import CoordinatorCore
from cloud_coordinator.core.events import Event
from cloud_coordinator.figures import Figures
from cloud_coordinator.rollout.service import Job, Policies
from cloud_coordinator.rounds_wiring import Rounds
from cloud_coordinator.runtime import Runtime
from cloud_coordinator.settings import CoordinatorSettings
from cloud_coordinator.writer import CoreThread
from skerry.blobs import BlobStore
from skerry.clock import Clock
from skerry.identity import PrivateKey

T = TypeVar("T")


@dataclass(kw_only=True)
class Office:
    """The parts of a running coordinator, for the handlers."""

    settings: CoordinatorSettings
    runtime: Runtime
    thread: CoreThread
    blobs: BlobStore
    key: PrivateKey
    figures: Figures
    clock: Clock
    pace: Pace
    ledger_epoch: str
    policies: Policies = field(init=False)  #: set once the rest is there
    rounds: Rounds = field(init=False)  #: set once the rest is there
    http_url: str = ""  #: what nodes are told; known once the server listens

    async def ask(self, job: Callable[[CoordinatorCore], T]) -> T:
        """Return what the job returns, from the core's own thread, after its commit."""
        return await self.thread.run(job)

    async def handle(self, event: Event) -> None:
        """Have the core take an event, and do what it asks for, after its commit."""
        now, wall_s = self.clock.now(), self.clock.wall_s()
        self.runtime.perform(await self.ask(lambda core: core.handle(event, now, wall_s)))

    async def ask_rollouts(self, job: Job[T]) -> T:
        """Return what the job returns, from the core's thread; nodes it told are told after the commit."""
        now, wall_s = self.clock.now(), self.clock.wall_s()
        answer, actions = await self.ask(lambda core: core.ask_rollouts(job, now, wall_s))
        self.runtime.perform(actions)
        return answer


OFFICE = web.AppKey("OFFICE", Office)


def office(request: web.Request) -> Office:
    """Return the parts that a request's application works with."""
    return request.app[OFFICE]
