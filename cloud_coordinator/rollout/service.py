"""Policies and rollouts for the interface and for rounds: checks papers, has versions vetted, asks the core.

Owns the vetting queue: one version at a time. Everything durable is the core's.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

from cloud_coordinator.rollout import registry
from cloud_coordinator.rollout.book import Book
from cloud_coordinator.rollout.core import Rollouts, Tell
from cloud_coordinator.rollout.progress import Now
from cloud_coordinator.rollout.registry import Vetted
from cloud_coordinator.rollout.settings import PolicySettings
from cloud_coordinator.rollout.values import (
    PolicyVersion,
    Progress,
    Rollout,
    RolloutSpec,
    VersionState,
)
from skerry.blobs import BlobStore
from skerry.errors import PolicyError, SkerryError
from skerry.identity import PrivateKey
from skerry.policy_manifest import PolicyManifest, encode_manifest, sign_manifest, verify_manifest

log = logging.getLogger(__name__)

T = TypeVar("T")
Job = Callable[[Rollouts, Now, dict[str, bool], Tell], T]
View = Callable[[Rollout, dict[str, Progress], Book], T]

#: A manifest travels inside a command and is kept under one name in the node's store.
MANIFEST_LIMIT_BYTES = 24 * 1024
#: After a failure (a full disk, a core too busy) vetting is tried again; a new version wakes it sooner.
_VET_AGAIN_S = 5.0


class Vetter(Protocol):
    """Tries a version out."""

    async def vet(self, version: PolicyVersion) -> Vetted:
        """Return what was found."""
        ...


class AskCore(Protocol):
    """Has a job done by the core, in its transaction."""

    def __call__(self, job: Job[T]) -> Awaitable[T]:
        """Return what the job returns, after its commit.  Raises PolicyError and what the ledger raises."""
        ...


class Policies:
    """The registry and the rollouts of a running coordinator."""

    def __init__(
        self, ask: AskCore, blobs: BlobStore, key: PrivateKey, vetter: Vetter, settings: PolicySettings
    ) -> None:
        """key: signs what the registry takes in; nodes trust nothing else."""
        self._ask, self._blobs, self._key = ask, blobs, key
        self._vetter, self._settings = vetter, settings
        self._wake = asyncio.Event()
        self._worker: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin vetting what waits for it."""
        self._worker = asyncio.create_task(self._vet_all())
        self._wake.set()

    async def stop(self) -> None:
        """End a vetting under way; it is begun again by the next process."""
        if self._worker is not None:
            self._worker.cancel()
            await asyncio.gather(self._worker, return_exceptions=True)

    async def add(self, manifest: PolicyManifest, *, by: str) -> PolicyVersion:
        """Take a version in, have it vetted.  Its file is in the content store already.

        Raises PolicyError, saying why it is refused: not signed, by nobody known, no such file.
        """
        self._check(manifest)
        signed = sign_manifest(manifest, self._key)
        self._blobs.pin(signed.file_hash)
        version = await self._ask(
            lambda rollouts, at, fleet, tell: registry.add(rollouts.book, signed, by=by, wall_s=at.wall_s)
        )
        self._wake.set()
        return version

    async def versions(self) -> list[PolicyVersion]:
        """Return every version, newest first."""
        found = await self._ask(lambda rollouts, at, fleet, tell: list(rollouts.book.versions.values()))
        return sorted(found, key=lambda version: -version.added_wall_s)

    async def version(self, name: str) -> PolicyVersion:
        """Return one version.  Raises PolicyError."""
        return await self._ask(lambda rollouts, at, fleet, tell: rollouts.book.version(name))

    async def begin(self, spec: RolloutSpec, *, by: str) -> Rollout:
        """Start a rollout.  Raises PolicyError when it may not begin."""
        rollout_id = f"r-{secrets.token_hex(4)}"
        return await self._ask(
            lambda rollouts, at, fleet, tell: rollouts.start(
                spec, at, fleet, tell, rollout_id=rollout_id, by=by
            )
        )

    async def rollouts(self) -> list[Rollout]:
        """Return every rollout, newest first."""
        found = await self._ask(lambda rollouts, at, fleet, tell: list(rollouts.book.rollouts.values()))
        return sorted(found, key=lambda rollout: -rollout.started_wall_s)

    async def current(self) -> str:
        """Return what the fleet runs; empty: the fallback."""
        return await self._ask(lambda rollouts, at, fleet, tell: rollouts.book.current.policy)

    async def seen(self, rollout_id: str, view: View[T]) -> T:
        """Return a view of a rollout, made where its state is.  Raises PolicyNotFound."""

        def job(rollouts: Rollouts, at: Now, fleet: dict[str, bool], tell: Tell) -> T:
            rollout = rollouts.book.rollout(rollout_id)
            return view(rollout, rollouts.progress(rollout, at, fleet), rollouts.book)

        return await self._ask(job)

    async def pause(self, rollout_id: str, *, by: str) -> Rollout:
        """Pause.  Raises PolicyError."""
        return await self._ask(lambda rollouts, at, fleet, tell: rollouts.pause(rollout_id, at, by=by))

    async def resume(self, rollout_id: str, *, by: str) -> Rollout:
        """Go on.  Raises PolicyError."""
        return await self._ask(
            lambda rollouts, at, fleet, tell: rollouts.resume(rollout_id, at, fleet, tell, by=by)
        )

    async def abort(self, rollout_id: str, *, by: str) -> Rollout:
        """Stop and go back.  Raises PolicyError."""
        return await self._ask(
            lambda rollouts, at, fleet, tell: rollouts.abort(rollout_id, at, fleet, tell, by=by)
        )

    # --- inside ---------------------------------------------------------------------------------------

    def _check(self, manifest: PolicyManifest) -> None:
        trusted = (self._key.public_hex, *self._settings.signers)
        against = verify_manifest(manifest, trusted)
        if not against and len(encode_manifest(manifest)) > MANIFEST_LIMIT_BYTES:
            against = f"the manifest is larger than {MANIFEST_LIMIT_BYTES} bytes"
        if not against and not self._blobs.has(manifest.file_hash):
            against = f"its file {manifest.file_hash} is not in the content store: put it there first"
        if not against and self._blobs.size(manifest.file_hash) != manifest.file_bytes:
            against = "its file has another size than the manifest says"
        if against:
            raise PolicyError(f"policy {manifest.version} is refused: {against}")

    async def _vet_all(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            try:
                waiting = [v for v in await self.versions() if v.state is VersionState.VETTING]
                for version in reversed(waiting):
                    await self._vet(version)
            except (SkerryError, TimeoutError) as error:
                log.error("vetting stopped, and is tried again: %s", error)
                asyncio.get_running_loop().call_later(_VET_AGAIN_S, self._wake.set)

    async def _vet(self, version: PolicyVersion) -> None:
        result = await self._vetter.vet(version)
        below = self._settings.beats_below
        done = await self._ask(
            lambda rollouts, at, fleet, tell: registry.vetted(
                rollouts.book, version.policy, result, beats_below=below
            )
        )
        if done is not None:
            log.info("policy %s is %s: %s", done.manifest.version, done.state.value, done.reason)
            if done.state is VersionState.REFUSED:
                self._blobs.unpin(done.policy)
