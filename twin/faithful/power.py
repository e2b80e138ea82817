"""A machine's power: when it goes, what its disk had not synced may be gone. Knows one machine's files.

Everything up to the cut goes on as if nothing was: what the disk would hold is taken aside at the step where
the power goes, and put in place before the machine boots again.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from random import Random

from task_queue.testing_lossy_disk import LossyDisk

_numbers = itertools.count(1)
#: Writes, syncs and removals that a commit makes, roughly: a cut falls on one of the next so many.
STEPS = 24


class Power:
    """The power of one machine, and the disk that depends on it."""

    def __init__(self, home: Path, rng: Random) -> None:
        """home: whose databases lie on the lossy disk."""
        self.home = home
        self._rng = rng
        self.vfs = f"twin-{next(_numbers)}"  # of this process: it decides nothing
        self._disk = LossyDisk(self.vfs)
        self._disk.before_step = self._step
        self._countdown = 0
        self._went: Callable[[], None] = lambda: None
        self._left: dict[str, bytes] | None = None

    @property
    def is_off(self) -> bool:
        """Nothing that happens on the machine now has happened."""
        return self._left is not None

    def cut(self, went: Callable[[], None]) -> None:
        """Let it go now.  went: called at that moment."""
        if self._left is None:
            self._countdown = 0
            self._left = self._disk.after_cut(self._rng)
            went()

    def cut_in_commit(self, went: Callable[[], None]) -> None:
        """Let it go at some write, sync or removal that is to come."""
        self._went = went
        self._countdown = self._rng.randint(1, STEPS)

    def cut_if_armed(self, went: Callable[[], None]) -> None:
        """There was nothing to fall into: let it go now, if it has not gone and come back since."""
        if self._countdown:
            self.cut(went)

    def restore(self) -> None:
        """Put in place what the cut has left, and let there be power."""
        assert self._left is not None, "the power is there"
        for path in self._disk.files:
            for name in (path, f"{path}-shm"):
                Path(name).unlink(missing_ok=True)
        for name, content in self._left.items():
            (self.home / name).write_bytes(content)
        self._disk.forget()
        self._left = None

    def close(self) -> None:
        """Take the disk away."""
        self._disk.unregister()

    def _step(self, kind: str) -> None:
        if self._countdown:
            self._countdown -= 1
            if not self._countdown:
                self.cut(self._went)
