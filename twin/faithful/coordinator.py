"""The coordinator of a world: its machine, its ledger's disk, and the real runtime when it runs.

Owns starting, killing and enrolling. Its HTTP interface is not part of a world: what goes over it (content,
operators' wishes) is given to the core directly.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from cloud_coordinator.core import events as happened
from cloud_coordinator.core.core import CoordinatorCore
from cloud_coordinator.core.turn import Limits
from cloud_coordinator.figures import Figures
from cloud_coordinator.ledger.port import Ledger
from cloud_coordinator.ledger.values import FINAL
from cloud_coordinator.runtime import Runtime
from cloud_coordinator.settings import CoordinatorSettings
from cloud_coordinator.shedding import BEGINS_AT, RETRY_AFTER_S
from policy.guard.without_engine import AllowAll
from skerry.identity import PrivateKey
from skerry.node import NodeRecord
from skerry.topics import COORDINATOR
from twin.faithful.machine import Machine
from twin.faithful.overseer import Overseer, WatchedLedger, WatchedRuntime
from twin.faithful.shells import VirtualCoreThread
from twin.faithful.transport import LoopTransport
from twin.faithful.world import World

if TYPE_CHECKING:
    from twin.faithful.rounds import WorldOffice


class Cloud:
    """One coordinator: what runs now is `runtime`, None while nothing does."""

    def __init__(
        self,
        world: World,
        home: Path,
        *,
        fleet: str,
        key: PrivateKey,
        limits: Limits,
        overseer: Overseer,
    ) -> None:
        """home: its disk.  overseer: sees what it does."""
        self.world, self.home, self.fleet, self.key = world, home, fleet, key
        self.limits, self.overseer = limits, overseer
        self.machine = Machine(COORDINATOR, world.network)
        self.process = world.process(self.machine)
        self.runtime: Runtime | None = None
        self.core: CoordinatorCore | None = None
        self.thread: VirtualCoreThread | None = None
        self.transport: LoopTransport | None = None
        self.ledger: Ledger | None = None
        self.starts = 0
        self.may_run = True  #: False: it runs in another process
        self._pressed_s: float | None = None
        #: Called once, with the next commit on the disk, before anybody hears of it.
        self.after_commit: Callable[[], None] | None = None
        #: Makes what works beside the core on contents, rounds and rollouts, where a scenario has any.
        self.make_office: Callable[[Cloud], WorldOffice] | None = None
        self.office: WorldOffice | None = None

    @property
    def client_id(self) -> str:
        """Its name at the broker."""
        return f"skerry-{self.fleet}-{COORDINATOR}"

    def start(self) -> None:
        """Start it on what the disk holds."""
        assert self.runtime is None, "the coordinator runs already"
        if not self.may_run:
            return
        self.starts += 1
        loop = self.world.begin(self.process)
        self.runtime = loop.run_inside(self._assemble)
        loop.run_inside(self.runtime.start)
        if self.make_office is not None:
            self.office = loop.run_inside(lambda make=self.make_office: make(self))  # type: ignore[misc]
            loop.run_inside(self.office.start)

    def kill(self) -> None:
        """End it without a word."""
        if self.runtime is None:
            return
        assert self.thread is not None
        assert self.transport is not None
        assert self.ledger is not None
        self.runtime = None
        if self.office is not None:
            self.office.die()
            self.office = None
        self.thread.die()
        self.transport.die()
        self.world.end(self.process)
        self.ledger.close()

    @property
    def takes_rows(self) -> bool:
        """It runs, and is not pressed."""
        return self.runtime is not None and self._pressed_s is None

    def knows_end(self, task_id: str) -> bool:
        """Decide whether the ledger says that a task is over."""
        entry = self.ledger.task(task_id) if self.ledger is not None else None
        return entry is not None and entry.state in FINAL

    def press(self, retry_after_s: float | None) -> None:
        """Give it more to do than it can (others' jobs, emulated), until it is given None.

        retry_after_s: what it tells its nodes then.
        """
        self._pressed_s = retry_after_s
        if self.runtime is not None:
            self._weigh(self.runtime)

    def _weigh(self, runtime: Runtime) -> None:
        assert self.thread is not None
        self.thread.also_waiting = 0 if self._pressed_s is None else BEGINS_AT + 1
        runtime.shedding.retry_after_s = self._pressed_s or RETRY_AFTER_S

    def enrol(self, record: NodeRecord) -> None:
        """Take a node into the register, as its token does."""
        self.tell(happened.NodeEnrolled(record))

    def tell(self, event: happened.Event) -> None:
        """Give the core an event, as the interface does."""
        if self.runtime is not None and self.process.loop is not None:
            runtime = self.runtime
            self.process.loop.call_soon(lambda: runtime.post(event))

    def _saw_commit(self) -> None:
        after, self.after_commit = self.after_commit, None
        if after is not None:
            after()

    def _assemble(self) -> Runtime:
        loop, clock = self.process.loop, self.machine
        assert loop is not None
        self.home.mkdir(parents=True, exist_ok=True)
        self.ledger = WatchedLedger(self.home / "ledger.db", self.overseer)
        guard = AllowAll()
        settings = CoordinatorSettings(fleet=self.fleet, data_dir=str(self.home))
        core = CoordinatorCore(
            self.ledger,
            guard=guard,
            now=clock.now(),
            wall_s=clock.wall_s(),
            limits=self.limits,
            placement=settings.placement,
        )
        self.core = core
        self.thread = VirtualCoreThread(core, self.ledger, clock, loop)
        self.thread.committed = self._saw_commit
        self.transport = LoopTransport(self.world.network, loop, client_id=self.client_id)
        runtime = WatchedRuntime(
            msgspec.structs.replace(settings, fleet=self.fleet),
            core=core,
            thread=self.thread,
            transport=self.transport,
            key=self.key,
            guard=guard,
            figures=Figures(),
            clock=clock,
        )
        runtime.overseer = self.overseer
        self._weigh(runtime)
        return runtime
