"""What the rest of the coordinator sees of rounds: start, cancel, watch, and the door for replies."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Protocol

from federation.rounds.ledger import Entry, Refusal, Run, Version
from federation.values import Refused, Reply, RunSpec


class Rounds(Protocol):
    """Runs, served from the coordinator's process. All coroutines belong to its event loop."""

    async def start(self, spec: RunSpec) -> Run:
        """Write the run down and start its worker.  Raises FederationError when the id is taken."""
        ...

    async def resume(self, run_id: str) -> Run:
        """Start the worker of a run that is not final.  Raises FederationError when there is no such run."""
        ...

    async def cancel(self, run_id: str, reason: str) -> Run:
        """End a run: its worker is stopped within a second; instructions not yet gone are withdrawn."""
        ...

    async def on_reply(self, replies: Sequence[Reply]) -> list[Refused | None]:
        """Store replies durably, before returning; None for each that was kept, else why it was not.

        Either way the sender may forget the reply: a refusal is written down here.
        """
        ...

    async def runs(self) -> list[Run]:
        """Return every run, newest first."""
        ...

    async def show(self, run_id: str) -> RunReport:
        """Return all that is known of one run.  Raises FederationError for an unknown id."""
        ...

    def watch(self, run_id: str) -> AsyncIterator[RunReport]:
        """Yield a report now and after each change, until the run is final."""
        ...


class RunReport(Protocol):
    """One run for people and programs."""

    run: Run
    versions: Sequence[Version]
    entries: Sequence[Entry]
    refusals: Sequence[Refusal]
