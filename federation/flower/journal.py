"""What the loop asks of the place where versions are kept. Owns the port and the adapter without a disk."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Protocol

import msgspec

from federation.trainer import Parameters, load_trainer
from federation.values import Refused, RunSpec, Verdict
from federation.wire import Arrays


class Checkpoint(msgspec.Struct, kw_only=True):
    """Where a run stands. arrays: of the newest version.  bases: by number, the newest one among them."""

    version: int
    bases: dict[int, Arrays]
    state: bytes = b""  #: what the strategy wants to know again
    age_s: float = 0.0  #: how long ago, powered-on, the newest version's first instruction was given
    metrics: dict[str, float] = {}

    @property
    def arrays(self) -> Arrays:
        """The newest version."""
        return self.bases[self.version]


class Journal(Protocol):
    """Keeps versions and verdicts."""

    def load(self) -> Checkpoint:
        """Return where the run stands; version 0 at its start."""
        ...

    def commit(
        self,
        version: int,
        arrays: Arrays,
        *,
        state: bytes,
        verdicts: Mapping[str, Verdict],
        metrics: Mapping[str, float],
    ) -> None:
        """Keep a version with the verdicts it rests on, durably and as one, before returning."""
        ...

    def refuse(self, verdicts: Mapping[str, Refused]) -> None:
        """Keep verdicts although no version came of them."""
        ...

    def wait_for_quorum(self, reason: str) -> float:
        """Say that the run waits, and why; return how long it may, s."""
        ...


class MemoryJournal:
    """Keeps nothing beyond this process: for simulations."""

    def __init__(self, spec: RunSpec) -> None:
        """Begin at the trainer's own initial parameters."""
        self._patience_s = spec.patience_s
        self._kept = spec.max_staleness + 1
        self._checkpoint = Checkpoint(version=0, bases={0: initial_parameters(spec)})
        self.verdicts: dict[str, Verdict] = {}
        #: When each version was kept, s on the monotonic clock; the first is the start.
        self.kept_at_s = [time.monotonic()]

    def load(self) -> Checkpoint:
        """Return where the run stands."""
        return self._checkpoint

    def commit(
        self,
        version: int,
        arrays: Arrays,
        *,
        state: bytes,
        verdicts: Mapping[str, Verdict],
        metrics: Mapping[str, float],
    ) -> None:
        """Keep a version with its verdicts."""
        bases = {**self._checkpoint.bases, version: arrays}
        kept = {number: base for number, base in bases.items() if number > version - self._kept}
        self._checkpoint = Checkpoint(version=version, bases=kept, state=state, metrics=dict(metrics))
        self.verdicts.update(verdicts)
        self.kept_at_s.append(time.monotonic())

    def refuse(self, verdicts: Mapping[str, Refused]) -> None:
        """Keep verdicts."""
        self.verdicts.update(verdicts)

    def wait_for_quorum(self, reason: str) -> float:
        """Return how long the run may wait."""
        return self._patience_s


def initial_parameters(spec: RunSpec) -> Parameters:
    """Return version 0 of a run without a base."""
    return load_trainer(spec.trainer).initial(spec.config, spec.seed)
