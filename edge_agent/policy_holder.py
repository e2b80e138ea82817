"""The shell around a node's policy: fetches the file, loads it, gives it to the decider, writes what is said.

numpy and onnxruntime are imported when a policy is loaded, and not before. Decides nothing.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from edge_agent.core.commands import POLICY_ORDER
from edge_agent.core.events import AttemptEnded
from edge_agent.policy_core import HELD, PolicyCore
from edge_agent.policy_trial import PolicyTrial
from skerry.blobs import BlobStore
from skerry.clock import Clock
from skerry.documents import PolicyStatus
from skerry.errors import BlobError, QueueError, StorageFailed
from skerry.messages import ActivatePolicy
from skerry.policy_manifest import PolicyManifest
from task_queue.operations import Answer, Operation, PutMeta
from task_queue.store import Store

if TYPE_CHECKING:
    from pathlib import Path

    from edge_agent.decider import PolicyDecider
    from policy.port import Scheduler

log = logging.getLogger(__name__)

#: What the trial has to say or to keep is committed at most this often, seconds.
COMMIT_EVERY_S = 0.5
#: A file that could not be fetched is asked for again after this, doubled up to the second.
FETCH_FIRST_S, FETCH_MOST_S = 2.0, 300.0

Commit = Callable[..., Awaitable[Any]]
Have = Callable[[str], Awaitable[None]]


class PolicyRunner(NamedTuple):
    """How a policy's file is run. load: file, manifest, trusted key → a Scheduler, or why it is refused.

    timer: seconds by which one decision of it is measured.
    """

    load: Callable[[Path, PolicyManifest, str], Scheduler | str]
    timer: Callable[[], float]


class PolicyHolder:
    """Keeps one node's policy in step with its orders. On the agent's event loop."""

    def __init__(
        self,
        store: Store,
        decider: PolicyDecider,
        blobs: BlobStore,
        *,
        trusted_key: str,
        have: Have,
        commit: Commit,
        clock: Clock,
        rng: Random,
        runner: PolicyRunner | None = None,
    ) -> None:
        """have: see ContentCache.have.  commit: see CoreLoop.commit; call `seen` with every commit.

        runner: instead of ONNX's.
        """
        self._runner = runner or PolicyRunner(_load_actor, _own_seconds)
        self.core = PolicyCore(store.meta(HELD), trusted_key)
        self._order: Any = store.meta(POLICY_ORDER)
        self._trusted_key = trusted_key
        self._decider, self._blobs, self._have = decider, blobs, have
        self._commit, self._clock, self._rng = commit, clock, rng
        self._loading: asyncio.Task[None] | None = None
        self._committer: asyncio.Task[None] | None = None
        self._stirred = asyncio.Event()  #: without a trial, only what stirs it leaves something to write

    def start(self) -> None:
        """Take up what was held, and an order that came in the last moment of the process before."""
        if self._order is not None and self.core.held.rollout != self._order.get("rollout", ""):
            self._take(self._order)
        else:
            self.core.started()
            self._load()
        self._committer = asyncio.create_task(self._keep_committing())

    async def close(self) -> None:
        """Stop in order: the store is still open."""
        for task in (self._loading, self._committer):
            if task is not None:
                task.cancel()
        await asyncio.gather(*filter(None, (self._loading, self._committer)), return_exceptions=True)
        self.core.stopped()
        try:
            await self._write()
        except (StorageFailed, QueueError) as error:
            log.warning("the policy's figures of the last moments are lost: %s", error)

    def seen(self, operations: Sequence[Operation], answers: Sequence[Answer]) -> None:
        """Look at a commit: the last order in it counts."""
        orders = [one.value for one in operations if isinstance(one, PutMeta) and one.name == POLICY_ORDER]
        if orders:
            self._take(orders[-1])

    def ended(self, event: AttemptEnded, *, deadline_at: float | None) -> None:
        """An attempt has ended. deadline_at: uptime at which the task's deadline passes, s."""
        trial = self._decider.trial
        if trial is not None:
            now = self._clock.now()
            is_late = deadline_at is not None and now.uptime_s > deadline_at
            trial.ended(event.task_id, event.report, now, is_late=is_late)

    def status(self) -> PolicyStatus:
        """Return what there is to see."""
        held, gate = self.core.held, self.core.gate
        manifest = self.core.manifest
        return PolicyStatus(
            policy=held.policy,
            version=manifest.version if manifest else "",
            rollout=held.rollout,
            state=self.core.state,
            reason=held.reason or gate.state.reason,
            fallback=self._decider.scheduler.name,
            is_loaded=self._decider.trial is not None,
            decisions={arm.value: count for arm, count in gate.state.decisions.items()},
            failures=dict(gate.state.failures),
            evidence=gate.evidence() if held.policy else {},
        )

    # --- inside ---------------------------------------------------------------------------------------

    def _take(self, value: Any) -> None:
        before, old = self.core.gate, self.core.held.policy
        order = msgspec.convert(value, ActivatePolicy)
        self.core.order(order, seed=self._rng.getrandbits(48))
        self._stirred.set()
        if self.core.gate is not before:
            self._decider.trial = None
            if old and old != self.core.held.policy:
                self._blobs.unpin(old)
            self._load()

    def _load(self) -> None:
        if self._loading is not None:
            self._loading.cancel()
            self._loading = None
        manifest = self.core.manifest
        if manifest is not None and self.core.needs_file:
            self._loading = asyncio.create_task(self._fetch_and_load(manifest))

    async def _fetch_and_load(self, manifest: PolicyManifest) -> None:
        self._blobs.pin(manifest.file_hash)
        path = await self._file(manifest.file_hash)
        await self._keep()  # so that a load that ends the process is known to the next one
        found = await asyncio.to_thread(self._runner.load, path, manifest, self._trusted_key)
        if isinstance(found, str):
            self.core.refuse(found)
            self._stirred.set()
            self._blobs.unpin(manifest.file_hash)
            return
        self.core.loaded()
        self._stirred.set()
        if self.core.gate.has_candidate:
            self._decider.trial = PolicyTrial(self.core.gate, found, self._runner.timer)

    async def _file(self, name: str) -> Any:
        """The file's path, once it is here; asked for as long as it takes (an order ends it)."""
        delay_s = FETCH_FIRST_S
        while True:
            try:
                await self._have(name)
                return await asyncio.to_thread(self._blobs.path, name)
            except BlobError as error:
                log.warning("policy %s is not here yet: %s", name[:19], error)
                await asyncio.sleep(self._rng.uniform(delay_s / 2, delay_s))
                delay_s = min(2 * delay_s, FETCH_MOST_S)

    async def _keep_committing(self) -> None:
        while True:
            self._stirred.clear()
            try:
                await self._write()
            except StorageFailed as error:
                log.warning("the policy's figures are kept later: %s", error)
                self._stirred.set()
            if self._decider.trial is None:
                await self._stirred.wait()
            await asyncio.sleep(COMMIT_EVERY_S)

    async def _keep(self) -> None:
        while True:
            try:
                await self._write()
                return
            except StorageFailed as error:
                log.warning("the policy waits for the disk: %s", error)
                await asyncio.sleep(FETCH_FIRST_S)

    async def _write(self) -> None:
        if self._decider.trial is not None and not self.core.gate.has_candidate:
            self._decider.trial = None  # rolled back: nobody asks it any more
        operations = self.core.operations()
        if operations:
            await self._commit(*operations)


def _own_seconds() -> float:
    """Processor seconds of this thread: a machine that is busy with tasks is no fault of the policy."""
    return time.thread_time()


def _load_actor(path: Any, manifest: PolicyManifest, trusted_key: str) -> Any:
    """Return the policy as a scheduler, or why it is refused."""
    try:
        from policy.actor import Refused, load_actor
    except ImportError as error:
        return f"this node cannot run policies: {error}; install the extra `edge`"
    try:
        found = load_actor(path, manifest, trusted_keys=(trusted_key,))
    except (
        Exception
    ) as error:  # a file from elsewhere and a native runtime: whatever it is, the agent goes on
        log.exception("policy %s could not be loaded", manifest.version)
        return f"it cannot be loaded: {type(error).__name__}: {error}"[:500]
    return found.reason if isinstance(found, Refused) else found
