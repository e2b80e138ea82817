"""What the ledger's rules need of a store: rows in and out, inside one transaction. Two adapters."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from federation.rounds.ledger import Entry, Refusal, Run, Version
from federation.values import ReplyState


class Tables(Protocol):
    """Rows of the round ledger. Decides nothing."""

    def transaction(self) -> AbstractContextManager[None]:
        """Make the block one synced commit; undone when it raises. Not nested."""
        ...

    def close(self) -> None:
        """Close in order."""
        ...

    def get_run(self, run_id: str) -> Run | None:
        """Return one run, or None."""
        ...

    def put_run(self, run: Run) -> None:
        """Write a run, new or known."""
        ...

    def all_runs(self) -> list[Run]:
        """Return every run, newest first."""
        ...

    def add_version(self, version: Version) -> None:
        """Write a new version."""
        ...

    def versions_of(self, run_id: str) -> list[Version]:
        """Return versions, oldest first."""
        ...

    def get_entry(self, instruction_id: str) -> Entry | None:
        """Return one entry, or None."""
        ...

    def put_entry(self, entry: Entry) -> None:
        """Write an entry, new or known. One with a verdict does not change any more: StorageFailed."""
        ...

    def entries_of(self, run_id: str, states: Sequence[ReplyState] | None, node: str | None) -> list[Entry]:
        """Return entries by version and node."""
        ...

    def get_payload(self, instruction_id: str) -> bytes:
        """Return the bytes kept with an entry; empty when there are none."""
        ...

    def put_payload(self, instruction_id: str, payload: bytes) -> None:
        """Keep bytes with an entry; empty ones forget what was kept."""
        ...

    def add_refusal(self, refusal: Refusal) -> None:
        """Count a refusal by run, node, instruction and code."""
        ...

    def refusals_of(self, run_id: str) -> list[Refusal]:
        """Return refusals by node, instruction and code."""
        ...
