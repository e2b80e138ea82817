"""The round ledger in memory: for tests and the twin; same rules, no disk. A copy undoes what raised."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from msgspec.structs import replace

from federation.rounds.ledger import Entry, Refusal, Run, Version
from federation.rounds.rules import RuledLedger
from federation.values import FINAL_REPLY_STATES, ReplyState
from skerry.errors import StorageFailed

_RefusalKey = tuple[str, str, str, str]


class MemoryTables:
    """Rows in dictionaries."""

    def __init__(self) -> None:
        """Start empty."""
        self._runs: dict[str, Run] = {}
        self._versions: dict[str, list[Version]] = {}
        self._entries: dict[str, Entry] = {}
        self._payloads: dict[str, bytes] = {}
        self._refusals: dict[_RefusalKey, Refusal] = {}

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Make the block one commit; undone when it raises."""
        before = (
            self._runs.copy(),
            {run_id: versions.copy() for run_id, versions in self._versions.items()},
            self._entries.copy(),
            self._payloads.copy(),
            self._refusals.copy(),
        )
        try:
            yield
        except BaseException:
            self._runs, self._versions, self._entries, self._payloads, self._refusals = before
            raise

    def close(self) -> None:
        """Keep everything: there is nothing to close."""

    def get_run(self, run_id: str) -> Run | None:
        """Return one run, or None."""
        return self._runs.get(run_id)

    def put_run(self, run: Run) -> None:
        """Write a run, new or known."""
        self._runs[run.spec.run_id] = run

    def all_runs(self) -> list[Run]:
        """Return every run, newest first."""
        return list(reversed(self._runs.values()))

    def add_version(self, version: Version) -> None:
        """Write a new version."""
        self._versions.setdefault(version.run_id, []).append(version)

    def versions_of(self, run_id: str) -> list[Version]:
        """Return versions, oldest first."""
        return list(self._versions.get(run_id, ()))

    def get_entry(self, instruction_id: str) -> Entry | None:
        """Return one entry, or None."""
        return self._entries.get(instruction_id)

    def put_entry(self, entry: Entry) -> None:
        """Write an entry, new or known."""
        known = self._entries.get(entry.instruction.id)
        if known is not None and known.state in FINAL_REPLY_STATES:
            raise StorageFailed("an entry with a verdict does not change")
        self._entries[entry.instruction.id] = entry

    def entries_of(self, run_id: str, states: Sequence[ReplyState] | None, node: str | None) -> list[Entry]:
        """Return entries by version and node."""
        found = [
            entry
            for entry in self._entries.values()
            if entry.instruction.run_id == run_id
            if states is None or entry.state in states
            if node is None or entry.instruction.node == node
        ]
        return sorted(found, key=lambda entry: (entry.instruction.version, entry.instruction.node))

    def get_payload(self, instruction_id: str) -> bytes:
        """Return the bytes kept with an entry; empty when there are none."""
        return self._payloads.get(instruction_id, b"")

    def put_payload(self, instruction_id: str, payload: bytes) -> None:
        """Keep bytes with an entry; empty ones forget what was kept."""
        if payload:
            self._payloads[instruction_id] = payload
        else:
            self._payloads.pop(instruction_id, None)

    def add_refusal(self, refusal: Refusal) -> None:
        """Count a refusal by run, node, instruction and code."""
        key = (refusal.run_id, refusal.node, refusal.instruction_id, refusal.code)
        known = self._refusals.get(key)
        self._refusals[key] = replace(known, count=known.count + 1) if known else refusal

    def refusals_of(self, run_id: str) -> list[Refusal]:
        """Return refusals by node, instruction and code."""
        return [refusal for key, refusal in sorted(self._refusals.items()) if key[0] == run_id]


def memory_ledger() -> RuledLedger:
    """Return an empty ledger in memory. Hand the object to the next run to play a restart."""
    return RuledLedger(MemoryTables())
