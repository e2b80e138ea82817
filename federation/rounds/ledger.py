"""The round ledger's port and its rows: runs, versions, instructions with their replies. Two adapters.

One synchronous owner; every method that writes is one synced commit. Knows nothing of Flower or of a worker.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec

from federation.values import Accepted, Instruction, Refused, Reply, ReplyState, RunSpec, RunState, Verdict
from skerry.clock import Instant


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """A run and where it stands. version: the newest one committed, 0 is the base."""

    spec: RunSpec
    state: RunState
    reason: str = ""
    version: int = 0
    created_wall_s: float = 0.0
    ended_wall_s: float = 0.0
    waiting_left_s: float | None = None  #: of the patience, when it began to wait


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
    """One instruction and what became of it."""

    instruction: Instruction
    state: ReplyState
    reply: Reply | None = None
    counted_in: int | None = None  #: the version it was merged into
    weight: float = 0.0
    staleness: int = 0
    code: str = ""  #: of a refusal
    reason: str = ""
    is_late: bool = False
    sent: Instant | None = None
    replied_wall_s: float = 0.0


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """A reply that met no open instruction, or was refused: who, what and why. Counted, never lost."""

    run_id: str
    node: str
    instruction_id: str
    code: str
    reason: str
    count: int = 1


#: What `receive` says of a reply that it stored nothing of.
RECEIPT_REFUSALS = ("unknown_instruction", "foreign_node", "duplicate", "run_over", "malformed", "node_error")


class RoundLedger(Protocol):
    """Durable state of all runs. Any method may raise StorageFailed: then nothing of its commit was kept."""

    def close(self) -> None:
        """Close in order."""
        ...

    # --- runs -------------------------------------------------------------------------------------------

    def create(self, spec: RunSpec, wall_s: float) -> Run:
        """Write a new run.  Raises FederationError when the id is taken by a run with another spec."""
        ...

    def run(self, run_id: str) -> Run | None:
        """Return one run, or None."""
        ...

    def runs(self) -> list[Run]:
        """Return every run, newest first."""
        ...

    def move(
        self,
        run_id: str,
        state: RunState,
        *,
        reason: str = "",
        wall_s: float = 0.0,
        waiting_left_s: float | None = None,
    ) -> Run:
        """Change a run's state.  Raises InvalidTransition.

        At a final state every entry without a verdict becomes refused with the code `run_over`.
        """
        ...

    # --- versions ---------------------------------------------------------------------------------------

    def commit(self, version: Version, verdicts: Mapping[str, Verdict]) -> bool:
        """Write a version and the verdicts it rests on, as one. False: this version is there already.

        verdicts: instruction id → verdict, for entries with a stored reply. An entry judged before keeps its
        verdict, and then nothing is written: FederationError.  Raises FederationError when the version does
        not follow the newest one.
        """
        ...

    def versions(self, run_id: str) -> list[Version]:
        """Return the committed versions, oldest first."""
        ...

    # --- instructions and replies -----------------------------------------------------------------------

    def push(self, instructions: Sequence[Instruction], now: Instant) -> list[Entry]:
        """Write instructions that are not there yet; return the entries of all of them.

        Older open ones of the same node and run become superseded. An instruction older than the newest one
        of its node is written as superseded.
        """
        ...

    def receive(self, replies: Sequence[Reply], wall_s: float) -> list[Refused | None]:
        """Store each reply that answers an instruction without one; else say why not (code of
        RECEIPT_REFUSALS) and count it. None: stored.
        """
        ...

    def judge(self, run_id: str, verdicts: Mapping[str, Refused]) -> None:
        """Refuse stored replies outside a commit (a version that was not made keeps its refusals)."""
        ...

    def entries(
        self, run_id: str, *, ids: Sequence[str] | None = None, states: Sequence[ReplyState] | None = None
    ) -> list[Entry]:
        """Return entries by version and node; only those with the given ids or states when given."""
        ...

    def refusals(self, run_id: str) -> list[Refusal]:
        """Return what was refused, counted by node and code."""
        ...


def settle(entry: Entry, verdict: Verdict, version: int) -> Entry:
    """Return the entry with its verdict. version: the one being committed."""
    replace = msgspec.structs.replace
    if isinstance(verdict, Accepted):
        return replace(
            entry,
            state=ReplyState.ACCEPTED,
            counted_in=version,
            weight=verdict.weight,
            staleness=verdict.staleness,
        )
    return replace(entry, state=ReplyState.REFUSED, code=verdict.code, reason=verdict.reason)
