"""Trying a version out in a process of its own: whether it can be used at all, and how it does. An adapter.

The coordinator itself never loads a policy: it may hold anything, and end the process that runs it.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import sys
import tempfile
from pathlib import Path

import msgspec

from cloud_coordinator.rollout.registry import Vetted
from cloud_coordinator.rollout.settings import PolicySettings
from cloud_coordinator.rollout.values import PolicyVersion
from skerry.blobs import BlobStore
from skerry.errors import BlobError
from skerry.policy_manifest import EvaluationSummary, encode_manifest, manifest_path

#: How much of what a child says is read.
OUTPUT_LIMIT_BYTES = 1 << 20
NICENESS = 10


class _Said(msgspec.Struct, frozen=True):
    """What `skerry policy evaluate --json` prints."""

    policy: str
    evaluation: EvaluationSummary


class ChildVetter:
    """Runs `skerry policy evaluate` on a copy of the file, niced, with a deadline."""

    def __init__(self, blobs: BlobStore, settings: PolicySettings, work: Path) -> None:
        """work: where copies are put; emptied of what an earlier process left there."""
        self._blobs, self._settings, self._work = blobs, settings, work
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir(mode=0o700, parents=True)

    async def vet(self, version: PolicyVersion) -> Vetted:
        """Return what was found; nothing raises but cancellation, which ends the child too."""
        try:
            folder = await asyncio.to_thread(self._lay_out, version)
        except (BlobError, OSError) as error:
            return Vetted(refused=f"its file cannot be read: {error}")
        try:
            return await self._run(folder / "policy.onnx")
        finally:
            await asyncio.to_thread(shutil.rmtree, folder, True)

    def _lay_out(self, version: PolicyVersion) -> Path:
        source = self._blobs.path(version.policy)
        folder = Path(tempfile.mkdtemp(dir=self._work))
        shutil.copyfile(source, folder / "policy.onnx")
        manifest_path(folder / "policy.onnx").write_bytes(encode_manifest(version.manifest))
        return folder

    async def _run(self, file: Path) -> Vetted:
        told = self._settings
        words = ["policy", "evaluate", str(file), "--devices", told.devices, "--json"]
        child = await asyncio.create_subprocess_exec(
            sys.executable, "-P", "-m", "skerry.cli", *words, "--scenarios", str(told.scenarios),
            stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
            limit=OUTPUT_LIMIT_BYTES,
        )  # fmt: skip
        os.setpriority(os.PRIO_PROCESS, child.pid, NICENESS)
        try:
            async with asyncio.timeout(told.evaluation_s):
                out, err = await child.communicate()
        except TimeoutError:
            return Vetted(refused=f"its evaluation did not end within {told.evaluation_s:g} s")
        finally:
            if child.returncode is None:
                child.kill()
                await child.wait()
        if child.returncode != 0:
            why = re.sub(rf"^{re.escape(str(file))} is refused \(\w+\): ", "", _last_words(err))
            return Vetted(refused=why or f"its evaluation ended with status {child.returncode}")
        return _read(out, told.against)


def _last_words(err: bytes) -> str:
    lines = [line.strip() for line in err.decode(errors="replace").splitlines() if line.strip()]
    return lines[-1].removeprefix("skerry: ")[:500] if lines else ""


def _read(out: bytes, against: str) -> Vetted:
    try:
        said = msgspec.json.decode(out, type=_Said)
    except msgspec.DecodeError as error:
        return Vetted(refused=f"its evaluation cannot be read: {error}")
    checked = tuple(one for one in said.evaluation.comparisons if one.against == against)
    return Vetted(checked=checked)
