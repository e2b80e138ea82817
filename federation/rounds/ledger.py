"""The round ledger's port and its rows: runs, versions, instructions with their replies. Two adapters.

One synchronous owner, one thread at a time; every method that writes is one synced commit. Knows nothing of
Flower or of a worker.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec

from federation.values import Instruction, Refused, Reply, ReplyState, RunSpec, RunState, Verdict
from skerry.clock import Instant


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """A run and where it stands. version: the newest one committed, 0 is the base."""

    spec: RunSpec
    state: RunState
    reason: str = ""
    version: int = 0
    created_wall_s: float = 0.0
    ended_wall_s: float = 0.0
    #: While it waits: since when, and how much of its patience was left then, s.
    waiting_since: Instant | None = None
    patience_left_s: float = 0.0


class Version(msgspec.Struct, frozen=True, kw_only=True):
    """A committed version. state: the strategy's own bytes, needed to go on from here."""

    run_id: str
    version: int
    model: str  #: content hash of its packet
    state: bytes = b""
    metrics: dict[str, float] = {}
    wall_s: float = 0.0
    accepted: int = 0
    refused: int = 0


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One instruction and what became of it. The reply is kept without its parameters: see `payload`."""

    instruction: Instruction
    state: ReplyState
    reply: Reply | None = None
    is_late: bool = False
    counted_in: int | None = None  #: the version it was merged into
    weight: float = 0.0
    staleness: int = 0
    code: str = ""  #: of a refusal
    reason: str = ""
    sent: Instant | None = None
    replied_wall_s: float = 0.0


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """Something that was refused: whose, why, how often. Counted, never lost."""

    run_id: str
    node: str
    instruction_id: str
    code: str
    reason: str
    count: int = 1


class RoundLedger(Protocol):
    """Durable state of all runs. Any method may raise StorageFailed: then nothing of its commit was kept."""

    def close(self) -> None:
        """Close in order."""
        ...

    # --- runs -------------------------------------------------------------------------------------------

    def create(self, spec: RunSpec, base: Version, wall_s: float) -> Run:
        """Write a new run with its version 0.  Raises FederationError when the id is taken."""
        ...

    def run(self, run_id: str) -> Run | None:
        """Return one run, or None."""
        ...

    def runs(self) -> list[Run]:
        """Return every run, newest first."""
        ...

    def move(
        self, run_id: str, state: RunState, *, now: Instant, reason: str = "", wall_s: float = 0.0
    ) -> Run:
        """Change a run's state.  Raises InvalidTransition.

        Patience runs while the run waits; it is whole again with every new version. At a final state every
        entry without a verdict becomes refused with the code `run_over`.
        """
        ...

    # --- versions ---------------------------------------------------------------------------------------

    def commit(self, version: Version, verdicts: Mapping[str, Verdict]) -> bool:
        """Write a version and the verdicts it rests on, as one. False: this very version is there already.

        verdicts: instruction id → verdict.  Raises FederationError, with nothing written, when the version
        does not follow the newest one, or an instruction has no stored reply or has its verdict already.
        """
        ...

    def versions(self, run_id: str) -> list[Version]:
        """Return the committed versions, oldest first; 0 is the base."""
        ...

    # --- instructions and replies -----------------------------------------------------------------------

    def push(self, instructions: Sequence[Instruction], now: Instant) -> list[Entry]:
        """Write instructions that are not there yet; return the entries of all of them, in their order.

        Older open ones of the same node and run become superseded.
        Raises FederationError when a run is unknown or final.
        """
        ...

    def receive(self, replies: Sequence[Reply], wall_s: float) -> list[Refused | None]:
        """Store each reply that answers an instruction without one: None. Else count it and say why not.

        A reply that carries an error is stored as a refusal of the code `node_error` or `superseded`, one
        about another version than asked as `base_version`.
        """
        ...

    def judge(self, run_id: str, verdicts: Mapping[str, Refused]) -> None:
        """Refuse stored replies outside a commit (a version that cannot be made keeps its refusals)."""
        ...

    def entries(
        self,
        run_id: str,
        *,
        ids: Sequence[str] | None = None,
        states: Sequence[ReplyState] | None = None,
    ) -> list[Entry]:
        """Return entries by version and node; only those with the given ids or states when given."""
        ...

    def payload(self, instruction_id: str) -> bytes:
        """Return the inline packet of a stored reply that has no verdict yet; empty when there is none."""
        ...

    def refusals(self, run_id: str) -> list[Refusal]:
        """Return what was refused, by node and code."""
        ...
