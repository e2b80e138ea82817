"""The ledger port: one synchronous owner of the coordinator's durable state. Two adapters: SQLite and memory.

Every write happens inside `transaction()`; the outermost one is one synced commit.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Protocol

from cloud_coordinator.ledger.values import (
    Counter,
    DeadLetter,
    Head,
    LedgerTask,
    Mark,
    Placement,
    TaskFilter,
    TaskState,
    Token,
)
from skerry.fence import Fence
from skerry.messages import Lane, Row
from skerry.node import NodeRecord


class Ledger(Protocol):
    """Durable state of one coordinator. Any method may raise StorageFailed: then its commit is undone."""

    @property
    def epoch(self) -> str:
        """Random id of this ledger: another one after a lost or restored disk."""
        ...

    def transaction(self) -> AbstractContextManager[None]:
        """Make everything inside one commit: synced when the block ends, undone when it raises.

        A nested one commits with the outer one, and is undone alone.
        """
        ...

    def close(self) -> None:
        """Close in order."""
        ...

    # --- term -------------------------------------------------------------------------------------------

    def begin_term(self) -> int:
        """Return a term greater than every one before, durably: the first part of every fence of this run."""
        ...

    def start_over(self, above: int) -> int:
        """Take a new epoch, forget every open task, and return a new term greater than `above`."""
        ...

    # --- register ---------------------------------------------------------------------------------------

    def node(self, name: str) -> NodeRecord | None:
        """Return one node, or None."""
        ...

    def nodes(self) -> list[NodeRecord]:
        """Return every node, by name."""
        ...

    def put_node(self, record: NodeRecord) -> None:
        """Write a node, new or known."""
        ...

    def token(self, digest: str) -> Token | None:
        """Return an enrolment token by the hash of its text, or None."""
        ...

    def put_token(self, token: Token) -> None:
        """Write a token, new or known."""
        ...

    # --- tasks ------------------------------------------------------------------------------------------

    def task(self, task_id: str) -> LedgerTask | None:
        """Return one task, or None."""
        ...

    def put_task(self, task: LedgerTask) -> None:
        """Write a task, new or known."""
        ...

    def find(self, task_filter: TaskFilter) -> list[LedgerTask]:
        """Return tasks, newest first."""
        ...

    def pending(self, limit: int, offset: int = 0) -> list[LedgerTask]:
        """Return waiting tasks: higher priority first, then in order of arrival."""
        ...

    def placed(self, node: str | None = None) -> list[LedgerTask]:
        """Return the tasks under a current placement, of one node or of all, in order of arrival."""
        ...

    def count_tasks(self) -> Mapping[TaskState, int]:
        """Return how many tasks there are in each state."""
        ...

    def prune(self, keep_ended: int) -> int:
        """Forget the oldest final tasks (with their placements) beyond keep_ended; return how many."""
        ...

    def add_placement(self, placement: Placement) -> None:
        """Write a new placement."""
        ...

    def end_placement(self, task_id: str, fence: Fence, ended: str, reason: str, wall_s: float) -> None:
        """Write how a placement ended; the first word stands."""
        ...

    def placements(self, task_id: str) -> list[Placement]:
        """Return a task's placements, oldest first."""
        ...

    # --- command log ------------------------------------------------------------------------------------

    def append_command(self, node: str, lane: Lane, kind: str, body: bytes, key: str = "") -> int:
        """Write the next command for a node and return its sequence number: contiguous in a lane, from 1."""
        ...

    def commands(self, node: str, lane: Lane, after: int, *, limit: int, limit_bytes: int) -> list[Row]:
        """Return commands above `after`, in order; at least one when there is one."""
        ...

    def trim_commands(self, node: str, lane: Lane, upto: int) -> None:
        """Forget the commands the node has applied; numbering goes on above them."""
        ...

    def head(self, node: str, lane: Lane) -> Head:
        """Return the last command written and the last one applied."""
        ...

    # --- the nodes' streams -----------------------------------------------------------------------------

    def mark(self, node: str, epoch: str, lane: Lane) -> Mark:
        """Return up to where a node's stream is applied; zeros for an unknown epoch."""
        ...

    def put_mark(self, node: str, epoch: str, lane: Lane, mark: Mark) -> None:
        """Write up to where a node's stream is applied, with what the rows changed."""
        ...

    def add_dead_letter(self, letter: DeadLetter) -> None:
        """Keep a row that could not be applied; the oldest beyond 10,000 go, counted."""
        ...

    def dead_letters(self, limit: int = 50, before: int | None = None) -> list[DeadLetter]:
        """Return dead letters, newest first; before: numbers below it only."""
        ...

    # --- documents --------------------------------------------------------------------------------------

    def document(self, kind: str, name: str) -> bytes | None:
        """Return one small document, or None."""
        ...

    def documents(self, kind: str) -> list[tuple[str, bytes]]:
        """Return (name, body) of every document of a kind, by name."""
        ...

    def put_document(self, kind: str, name: str, body: bytes) -> None:
        """Write a document, new or known: for what is few and always read whole (policies, rollouts)."""
        ...

    def drop_document(self, kind: str, name: str) -> None:
        """Forget a document; nothing happens when there is none."""
        ...

    # --- counters ---------------------------------------------------------------------------------------

    def count(self, name: str, *, node: str = "", reason: str = "", by: int = 1) -> None:
        """Add to a counter."""
        ...

    def counters(self) -> list[Counter]:
        """Return every counter, by name, node and reason."""
        ...
