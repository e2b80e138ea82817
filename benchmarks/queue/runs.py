"""Measuring processes started one after another, and the memory of what an interrupted run has measured.

A session's document is kept under the hash of what decides it; a run that ends whole forgets them all, so
that the next one measures afresh. Owns processes and partial results; knows nothing of what they mean.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from benchmarks.harness import BenchmarkError
from benchmarks.queue.backlog import ROOT, fingerprint
from benchmarks.queue.preload import Disk, environment
from benchmarks.queue.session import Session

_LIMIT_S = 600.0
_HERE = Path(__file__).parent


class Runs:
    """The sessions of one run. cache: where shim, backlogs and partial results lie."""

    def __init__(self, cache: Path) -> None:
        """Make the directory."""
        self.cache = cache
        self._partial = cache / "partial"
        self._partial.mkdir(parents=True, exist_ok=True)

    def session(
        self, module: str, spec: msgspec.Struct, disk: Disk, *, system: str, label: Sequence[object]
    ) -> Session:
        """Return what a process measured; label: what sets this session apart from others with its spec.

        Raises BenchmarkError when the process fails or refuses.
        """
        words = msgspec.json.encode(spec).decode()
        kept = self._partial / f"{self._key(module, words, disk, system, label)}.json"
        if kept.exists():
            return msgspec.json.decode(kept.read_bytes(), type=Session)
        text = self._output([f"benchmarks.queue.{module}", words], disk)
        session = msgspec.json.decode(text, type=Session)
        if session.refused:
            raise BenchmarkError(session.refused)
        kept.write_bytes(text)
        return session

    def floor(self, directory: Path, disk: Disk, duration_s: float, *, label: Sequence[object]) -> float:
        """Return how many synced pages per second the disk takes now."""
        kept = self._partial / f"{self._key('floor', str(duration_s), disk, 'skerry', label)}.json"
        if not kept.exists():
            directory.mkdir(parents=True, exist_ok=True)
            text = self._output(["benchmarks.queue.floor", str(directory), str(duration_s)], disk)
            kept.write_bytes(text)
        return float(kept.read_bytes())

    def forget(self) -> None:
        """Drop the partial results and the worn-out copies; filled backlogs stay for the next run."""
        shutil.rmtree(self._partial, ignore_errors=True)
        shutil.rmtree(self.cache / "work", ignore_errors=True)

    def _key(self, module: str, words: str, disk: Disk, system: str, label: Sequence[object]) -> str:
        code = "".join(path.read_text() for path in sorted(_HERE.glob("*session.py")))
        whole = repr((module, words, disk.value, fingerprint(system, with_code=True), tuple(label), code))
        return hashlib.sha256(whole.encode()).hexdigest()[:24]

    def _output(self, words: Sequence[str], disk: Disk) -> bytes:
        try:
            done = subprocess.run(
                [sys.executable, "-m", *words],
                cwd=ROOT,
                env=environment(disk, self.cache),
                capture_output=True,
                timeout=_LIMIT_S,
            )
        except subprocess.TimeoutExpired as error:
            raise BenchmarkError(f"{words[0]} took more than {_LIMIT_S:g} s") from error
        if done.returncode:
            last = done.stderr.decode(errors="replace").strip()[-400:]
            raise BenchmarkError(f"{words[0]} ended with {done.returncode}: {last}")
        return done.stdout
