"""Runs the console examples of a page in one shell, and compares what they print with what the page shows.

A line `$ command` is run; `> ` lines continue it. Lines below are output: each must come, in order, among
what the command prints, `…` standing for anything.
"""

from __future__ import annotations

import os
import re
import select
import signal
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

_BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_END = "end-of-command-"


@dataclass
class Step:
    """One command of a page and the output shown below it."""

    command: str
    shown: list[str] = field(default_factory=list)


def steps_of(text: str) -> list[Step]:
    """The commands of a page's console blocks, in order."""
    steps: list[Step] = []
    for block in _BLOCK.findall(text):
        for line in block.splitlines():
            if line.startswith("$ "):
                steps.append(Step(line[2:]))
            elif line.startswith("> ") or line == ">":
                steps[-1].command += "\n" + line[2:]
            elif line.strip():
                steps[-1].shown.append(line)
    return steps


def is_shown(shown: list[str], printed: str) -> bool:
    """Whether every shown line came, in order."""
    lines = iter(printed.splitlines())
    return all(any(_matches(one, line) for line in lines) for one in shown)


def _matches(shown: str, line: str) -> bool:
    pattern = ".*".join(re.escape(part) for part in shown.rstrip().split("…"))
    return re.fullmatch(pattern, line.rstrip()) is not None


class Shell:
    """One bash that keeps its variables and background jobs between commands; leaving it ends them all."""

    def __init__(self, directory: Path, environ: Mapping[str, str]) -> None:
        """Start bash in a session of its own, so that its jobs can be ended with it."""
        self._process = subprocess.Popen(
            ["bash", "--norc", "--noprofile"],
            cwd=directory,
            env=dict(environ),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self._count = 0
        self._read = b""

    def run(self, command: str, timeout_s: float) -> tuple[int, str]:
        """Run a command; return its exit status and what it printed."""
        self._count += 1
        mark = f"{_END}{self._count}:"
        assert self._process.stdin is not None
        self._process.stdin.write(f"{command}\necho {mark}$?\n".encode())
        self._process.stdin.flush()
        found = self._read_until(re.compile(re.escape(mark).encode() + rb"(\d+)\n"), timeout_s)
        printed, self._read = self._read[: found.start()].decode(errors="replace"), self._read[found.end() :]
        return int(found[1]), printed

    def _read_until(self, pattern: re.Pattern[bytes], timeout_s: float) -> re.Match[bytes]:
        assert self._process.stdout is not None
        deadline = time.monotonic() + timeout_s
        while not (found := pattern.search(self._read)):
            left = deadline - time.monotonic()
            ready, _, _ = select.select([self._process.stdout], [], [], max(0.0, left))
            chunk = os.read(self._process.stdout.fileno(), 65536) if ready else b""
            assert chunk, (
                f"no end within {timeout_s:g} s; printed so far:\n{self._read.decode(errors='replace')}"
            )
            self._read += chunk
        return found

    def __enter__(self) -> Shell:
        """The shell."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the shell and every job it started: SIGTERM, then SIGKILL for what is left."""
        for signum in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.killpg(self._process.pid, signum)
            except ProcessLookupError:
                break
            deadline = time.monotonic() + 10
            while time.monotonic() < deadline and _is_alive(self._process.pid):
                self._process.poll()
                time.sleep(0.05)  # processes of another session cannot be waited for
        self._process.wait()
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()


def _is_alive(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True
