"""Work done in forks of a warm process, which can die of it or never end. Knows not what the work is."""

from __future__ import annotations

import multiprocessing
import os
import resource
import signal
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

_FORK = multiprocessing.get_context("fork")
#: What no honest work needs: memory, and the size of one file.
_MOST_BYTES = 4 << 30
_MOST_FILE_BYTES = 512 << 20
#: Nothing here depends on a real disk.
_FAST = "/dev/shm" if Path("/dev/shm").is_dir() else None
#: Until the first word of a child, seconds.
_FIRST_S = 120.0

#: Says something, and in how many seconds at most the next word is due.
Say = Callable[[Any, float], None]


@dataclass
class Child:
    """One fork. said: its words so far; failed: it died, or was killed when the next word was overdue."""

    name: str
    ear: Connection
    process: Any
    due_s: float
    home: tempfile.TemporaryDirectory[str]
    said: list[Any] = field(default_factory=list)
    failed: str = ""

    def hear(self) -> bool:
        """Take a word; False when there will be no more."""
        try:
            word, within_s = self.ear.recv()
        except EOFError:
            self._end("the process died" if self._status() else "")
            return False
        if isinstance(word, BaseException):
            self._status()
            self._end(f"{type(word).__name__}: {word}")
            return False
        self.said.append(word)
        self.due_s = time.monotonic() + within_s
        return True

    def kill(self) -> None:
        """End it with all that it has started."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self._status()
        self._end("it does not end")

    def _status(self) -> int:
        self.process.join()
        return int(self.process.exitcode)

    def _end(self, failed: str) -> None:
        self.failed = failed
        self.ear.close()
        self.home.cleanup()


def in_children(works: Iterator[tuple[str, Callable[[Say], None]]], jobs: int) -> Iterator[Child]:
    """Do named works in a fork each, so many at once; yield each child when it is over."""
    running: list[Child] = []
    try:
        while True:
            while len(running) < jobs and (work := next(works, None)) is not None:
                running.append(_begin(*work))
            if not running:
                return
            for child in _over(running):
                running.remove(child)
                yield child
    finally:
        for child in running:
            child.kill()


def _over(running: Sequence[Child]) -> list[Child]:
    """Wait for a word, or until one is overdue; return the children that will say nothing more."""
    first_due_s = min(child.due_s for child in running) - time.monotonic()
    ready = wait([child.ear for child in running], timeout=max(0.0, first_due_s))
    over = [child for child in running if child.ear in ready and not child.hear()]
    for child in running:
        if child.ear not in ready and child.due_s <= time.monotonic():
            child.kill()
            over.append(child)
    return over


def _begin(name: str, work: Callable[[Say], None]) -> Child:
    ear, mouth = _FORK.Pipe(duplex=False)
    home = tempfile.TemporaryDirectory(prefix="m", dir=_FAST, ignore_cleanup_errors=True)
    process = _FORK.Process(target=_live, args=(work, mouth, home.name))
    process.start()
    mouth.close()
    return Child(name=name, ear=ear, process=process, due_s=time.monotonic() + _FIRST_S, home=home)


def _live(work: Callable[[Say], None], mouth: Connection, home: str) -> None:
    """Do the work, in a group of its own, within bounds, silently, with temporary files of its own."""
    os.setsid()
    os.environ["TMPDIR"] = tempfile.tempdir = home
    resource.setrlimit(resource.RLIMIT_AS, (_MOST_BYTES, _MOST_BYTES))
    resource.setrlimit(resource.RLIMIT_FSIZE, (_MOST_FILE_BYTES, _MOST_FILE_BYTES))
    silence = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):
        os.dup2(silence, stream)
    try:
        work(lambda word, within_s: mouth.send((word, within_s)))
    except Exception as error:
        mouth.send((RuntimeError(repr(error)), 0.0))  # itself it may not survive the way
