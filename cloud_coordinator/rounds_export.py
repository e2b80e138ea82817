"""A run's parameters as a policy, and a policy as a run's beginning: both in a child process.

Owns the child and its folder. The coordinator signs what comes out and offers it to its registry, which lets
nobody use it before it has tried it out itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from skerry.blobs import BlobStore
from skerry.errors import FederationError
from skerry.policy_manifest import Lineage, PolicyManifest, decode_manifest, manifest_path

MODULE = "federation.policy_child"


class PolicyChild:
    """Runs one conversion at a time."""

    def __init__(self, python: Path, blobs: BlobStore, work: Path, *, time_limit_s: float) -> None:
        """work: where folders are made; emptied of what an earlier process left."""
        self._python, self._blobs, self._work = python, blobs, work
        self._time_limit_s = time_limit_s
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir(mode=0o700, parents=True)

    async def packet_of(self, policy: str) -> str:
        """Put a policy's parameters into the content store; return the packet's hash.

        Raises FederationError when the file is no actor of this project's, BlobError.
        """
        source = await asyncio.to_thread(self._blobs.path, policy)
        with self._folder() as folder:
            await self._run("base", str(source), "--out", str(folder / "packet"))
            return await asyncio.to_thread(self._blobs.put_file, folder / "packet")

    async def policy_of(
        self, packet: str, lineage: Lineage, *, devices: str, scenarios: int
    ) -> PolicyManifest:
        """Put a packet as a policy file into the content store; return its papers, not signed.

        Raises FederationError when it is no actor, BlobError.
        """
        source = await asyncio.to_thread(self._blobs.path, packet)
        with self._folder() as folder:
            out = folder / "policy.onnx"
            await self._run(
                *("export", str(source), "--out", str(out), "--devices", devices),
                *("--scenarios", str(scenarios), "--lineage", msgspec.json.encode(lineage).decode()),
            )
            manifest = decode_manifest(manifest_path(out).read_bytes())
            await asyncio.to_thread(self._blobs.put_file, out, name=manifest.file_hash)
            return manifest

    @contextmanager
    def _folder(self) -> Iterator[Path]:
        folder = Path(tempfile.mkdtemp(dir=self._work))
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    async def _run(self, *words: str) -> None:
        child = await asyncio.create_subprocess_exec(
            *(str(self._python), "-P", "-m", MODULE, *words),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
        try:
            async with asyncio.timeout(self._time_limit_s):
                _, said = await child.communicate()
        except TimeoutError as error:
            raise FederationError(f"it took more than {self._time_limit_s:g} s") from error
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            await child.wait()
        if child.returncode != 0:
            lines = said.decode(errors="replace").strip().splitlines() or ["it said nothing"]
            raise FederationError(f"{lines[-1][:400]} (exit status {child.returncode})")
