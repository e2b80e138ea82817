"""Instructions as rows of the nodes' command logs; the register as the choice of participants sees it.

Called on the round service's own thread; what they need of the core is done on the core's thread, in a commit
of its own, and waited for. Knows no worker and no link: a row waits in its log while its node is away.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

from cloud_coordinator.core.core import CoordinatorCore
from federation.values import Candidate, Instruction
from skerry.clock import Clock, Instant
from skerry.errors import FederationError, SkerryError
from skerry.messages import DownRow, FederationOver, FederationRequest

T = TypeVar("T")
log = logging.getLogger(__name__)

#: How long the core may take for one commit before the round service is told that it failed.
CORE_TIMEOUT_S = 30.0
#: Each report of a run names who is eligible: the register is not asked for every one of them.
REMEMBERED_S = 0.5
Commands = Sequence[tuple[str, DownRow]]


class FromThread:
    """Waits on a foreign thread for what the event loop does."""

    def __init__(self) -> None:
        """Make it on the event loop."""
        self._loop = asyncio.get_running_loop()

    def __call__(self, work: Coroutine[Any, Any, T]) -> T:
        """Return what the coroutine returns.  Raises what it raises; FederationError if it takes too long."""
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result(CORE_TIMEOUT_S)
        except TimeoutError as error:
            future.cancel()
            raise FederationError("the coordinator's core is too busy; it is tried again") from error


class LogCourier:
    """Writes instructions into command logs. Twice the same row is one instruction: nodes know its id."""

    def __init__(self, tell: Callable[[Commands], None]) -> None:
        """tell: commits commands, or raises SkerryError with nothing committed."""
        self._tell = tell
        self._asked: defaultdict[str, set[str]] = defaultdict(set)

    def send(self, instructions: Sequence[Instruction]) -> None:
        """See Courier."""
        if not instructions:
            return
        self._tell([(one.node, request_of(one)) for one in instructions])
        for one in instructions:
            self._asked[one.run_id].add(one.node)

    def withdraw(self, run_id: str, reason: str) -> None:
        """Tell those who were asked since the start; the others train in vain and are refused by name."""
        nodes = sorted(self._asked.pop(run_id, ()))
        try:
            self._tell([(node, FederationOver(run_id=run_id, reason=reason[:500])) for node in nodes])
        except SkerryError as error:
            log.warning("nodes could not be told that run %s is over: %s", run_id, error)


class RegisterRoster:
    """Every enrolled node, as the core knows it now."""

    def __init__(
        self, ask: Callable[[Callable[[CoordinatorCore], list[Candidate]]], list[Candidate]], clock: Clock
    ) -> None:
        """ask: does a job on the core's thread."""
        self._ask = ask
        self._clock = clock
        self._seen: tuple[Instant, list[Candidate]] | None = None

    def candidates(self) -> list[Candidate]:
        """See Roster. What was read a moment ago is read again only after REMEMBERED_S."""
        now = self._clock.now()
        if (
            self._seen is None
            or self._seen[0].boot_id != now.boot_id
            or now.since(self._seen[0]) > REMEMBERED_S
        ):
            self._seen = (now, self._ask(self._read))
        return self._seen[1]

    def _read(self, core: CoordinatorCore) -> list[Candidate]:
        now = self._clock.now()
        return [
            Candidate(
                name=node.record.name,
                region=node.record.region,
                has_opted_in=bool(node.record.inventory and node.record.inventory.can_train),
                is_trusted=bool(node.record.public_key) and node.record.status != "quarantined",
                seen_ago_s=now.since(node.last_heard),
            )
            for node in core.memory.nodes.values()
        ]


def request_of(instruction: Instruction) -> FederationRequest:
    """Return the row of an instruction."""
    return FederationRequest(
        instruction_id=instruction.id,
        run_id=instruction.run_id,
        version=instruction.version,
        model=instruction.model,
        trainer=instruction.trainer,
        config=instruction.config,
        ttl_s=instruction.ttl_s,
        seed=instruction.seed,
    )
