"""The in-memory ledger: for the twin and for tests; same contract, no disk. A journal undoes what raised."""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import msgspec

from cloud_coordinator.ledger.sqlite import DEAD_LETTERS_KEPT
from cloud_coordinator.ledger.values import (
    FINAL,
    Counter,
    DeadLetter,
    Head,
    LedgerTask,
    Mark,
    Placement,
    TaskFilter,
    TaskState,
    Token,
    is_for_good,
)
from skerry.errors import StorageFailed
from skerry.fence import Fence
from skerry.messages import Lane, Row
from skerry.node import NodeRecord

_ABSENT: Any = object()


class MemoryLedger:
    """A ledger in dictionaries. Hand the object to the next run to play a restart."""

    def __init__(self, *, epoch: str | None = None) -> None:
        """Start empty."""
        self._names: dict[str, str] = {"epoch": epoch or secrets.token_hex(8)}
        self._depth = 0
        self._journal: list[tuple[dict[Any, Any], Any, Any]] = []
        self._numbers: dict[str, int] = {"term": 0, "arrival": 0, "letter": 0}
        self._nodes: dict[str, NodeRecord] = {}
        self._tokens: dict[str, Token] = {}
        self._tasks: dict[str, LedgerTask] = {}
        self._arrivals: dict[str, int] = {}
        #: ids by state, so that no listing looks at what has ended.
        self._by_state: dict[TaskState, dict[str, None]] = {state: {} for state in TaskState}
        self._placements: dict[str, tuple[Placement, ...]] = {}
        self._commands: dict[tuple[str, Lane], dict[int, Row]] = {}
        self._heads: dict[tuple[str, Lane], Head] = {}
        self._marks: dict[tuple[str, str, Lane], Mark] = {}
        self._letters: dict[int, DeadLetter] = {}
        self._counters: dict[tuple[str, str, str], int] = {}
        self._documents: dict[tuple[str, str], bytes] = {}

    @property
    def epoch(self) -> str:
        """Random id of this ledger."""
        return self._names["epoch"]

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Make the block one commit, or one undoable part of the commit it stands in."""
        begun_at = len(self._journal)
        self._depth += 1
        try:
            yield
        except BaseException:
            self._undo(begun_at)
            raise
        finally:
            self._depth -= 1
            if self._depth == 0:
                self._journal.clear()

    def close(self) -> None:
        """Keep everything: there is nothing to close."""

    def begin_term(self) -> int:
        """Return a term greater than every one before."""
        return self._next("term")

    def start_over(self, above: int) -> int:
        """Take a new epoch, forget every open task, and return a new term greater than `above`."""
        self._set(self._names, "epoch", secrets.token_hex(8))
        self._set(self._numbers, "term", max(above, self._numbers["term"]))
        self._forget([t for state in set(TaskState) - FINAL for t in self._by_state[state]])
        return self._next("term")

    # --- register ---------------------------------------------------------------------------------------

    def node(self, name: str) -> NodeRecord | None:
        """Return one node, or None."""
        return self._nodes.get(name)

    def nodes(self) -> list[NodeRecord]:
        """Return every node, by name."""
        return [self._nodes[name] for name in sorted(self._nodes)]

    def put_node(self, record: NodeRecord) -> None:
        """Write a node, new or known."""
        self._set(self._nodes, record.name, record)

    def token(self, digest: str) -> Token | None:
        """Return an enrolment token by the hash of its text, or None."""
        return self._tokens.get(digest)

    def put_token(self, token: Token) -> None:
        """Write a token, new or known."""
        self._set(self._tokens, token.digest, token)

    # --- tasks ------------------------------------------------------------------------------------------

    def task(self, task_id: str) -> LedgerTask | None:
        """Return one task, or None."""
        return self._tasks.get(task_id)

    def put_task(self, task: LedgerTask) -> None:
        """Write a task, new or known."""
        known = self._tasks.get(task.task_id)
        if known is None:
            self._set(self._arrivals, task.task_id, self._next("arrival"))
        elif is_for_good(known) and known.state != task.state:
            raise StorageFailed("a final task does not change its state")
        else:
            self._set(self._by_state[known.state], task.task_id, _ABSENT)
            fixed = {name: getattr(known, name) for name in ("home_node", "kind", "decision")}
            task = msgspec.structs.replace(task, task=known.task or task.task, **fixed)
        self._set(self._by_state[task.state], task.task_id, None)
        self._set(self._tasks, task.task_id, task)

    def find(self, task_filter: TaskFilter) -> list[LedgerTask]:
        """Return tasks, newest first."""
        wanted = task_filter
        found = (
            task
            for task in sorted(self._tasks.values(), key=lambda task: task.task_id, reverse=True)
            if not wanted.before or task.task_id < wanted.before
            if wanted.state is None or task.state == wanted.state
            if not wanted.node or task.node == wanted.node
            if not wanted.home_node or task.home_node == wanted.home_node
        )
        return list(itertools.islice(found, wanted.limit))

    def pending(self, limit: int, offset: int = 0) -> list[LedgerTask]:
        """Return waiting tasks: higher priority first, then in order of arrival."""
        waiting = self._in_state(TaskState.PENDING)
        waiting.sort(key=lambda task: -(task.task.priority if task.task else 0))
        return waiting[offset : offset + limit]

    def placed(self, node: str | None = None) -> list[LedgerTask]:
        """Return the tasks under a current placement, in order of arrival."""
        return [task for task in self._in_state(TaskState.PLACED) if node is None or task.node == node]

    def count_tasks(self) -> Mapping[TaskState, int]:
        """Return how many tasks there are in each state."""
        return {state: len(ids) for state, ids in self._by_state.items()}

    def prune(self, keep_ended: int) -> int:
        """Forget the oldest final tasks beyond keep_ended; return how many."""
        final = [task_id for state in FINAL for task_id in self._by_state[state]]
        final.sort(key=self._arrivals.__getitem__)
        going = final[: max(0, len(final) - keep_ended)]
        self._forget(going)
        return len(going)

    def add_placement(self, placement: Placement) -> None:
        """Write a new placement."""
        known = self._placements.get(placement.task_id, ())
        if any(old.fence == placement.fence for old in known):
            raise StorageFailed(f"{placement.task_id} has a placement {placement.fence} already")
        self._set(self._placements, placement.task_id, (*known, placement))

    def end_placement(self, task_id: str, fence: Fence, ended: str, reason: str, wall_s: float) -> None:
        """Write how a placement ended; the first word stands."""

        def after(old: Placement) -> Placement:
            if old.fence != fence or old.ended:
                return old
            return msgspec.structs.replace(old, ended=ended, reason=reason, ended_wall_s=wall_s)

        known = self._placements.get(task_id, ())
        self._set(self._placements, task_id, tuple(after(old) for old in known))

    def placements(self, task_id: str) -> list[Placement]:
        """Return a task's placements, oldest first."""
        return list(self._placements.get(task_id, ()))

    # --- command log ------------------------------------------------------------------------------------

    def append_command(self, node: str, lane: Lane, kind: str, body: bytes, key: str = "") -> int:
        """Write the next command for a node and return its sequence number."""
        head = self.head(node, lane)
        seq = head.last + 1
        self._set(self._heads, (node, lane), msgspec.structs.replace(head, last=seq))
        log = self._commands.setdefault((node, lane), {})
        self._set(log, seq, Row(seq=seq, kind=kind, key=key, body=msgspec.Raw(body)))
        return seq

    def commands(self, node: str, lane: Lane, after: int, *, limit: int, limit_bytes: int) -> list[Row]:
        """Return commands above `after`, in order; at least one when there is one."""
        log = self._commands.get((node, lane), {})
        found: list[Row] = []
        size = 0
        for seq in [seq for seq in log if seq > after][:limit]:
            size += len(bytes(log[seq].body))
            if found and size > limit_bytes:
                break
            found.append(log[seq])
        return found

    def trim_commands(self, node: str, lane: Lane, upto: int) -> None:
        """Forget the commands the node has applied."""
        head = self.head(node, lane)
        acked = min(head.last, max(head.acked, upto))
        if head.last:
            self._set(self._heads, (node, lane), Head(last=head.last, acked=acked))
        log = self._commands.get((node, lane), {})
        for seq in [seq for seq in log if seq <= upto]:
            self._set(log, seq, _ABSENT)

    def head(self, node: str, lane: Lane) -> Head:
        """Return the last command written and the last one applied."""
        return self._heads.get((node, lane), Head())

    # --- the nodes' streams -----------------------------------------------------------------------------

    def mark(self, node: str, epoch: str, lane: Lane) -> Mark:
        """Return up to where a node's stream is applied."""
        return self._marks.get((node, epoch, lane), Mark())

    def put_mark(self, node: str, epoch: str, lane: Lane, mark: Mark) -> None:
        """Write up to where a node's stream is applied."""
        self._set(self._marks, (node, epoch, lane), mark)

    def add_dead_letter(self, letter: DeadLetter) -> None:
        """Keep a row that could not be applied."""
        number = self._next("letter")
        self._set(self._letters, number, msgspec.structs.replace(letter, number=number))
        for old in [known for known in self._letters if known <= number - DEAD_LETTERS_KEPT]:
            self._set(self._letters, old, _ABSENT)

    def dead_letters(self, limit: int = 50, before: int | None = None) -> list[DeadLetter]:
        """Return dead letters, newest first."""
        numbers = (n for n in sorted(self._letters, reverse=True) if before is None or n < before)
        return [self._letters[number] for number in itertools.islice(numbers, limit)]

    # --- documents --------------------------------------------------------------------------------------

    def document(self, kind: str, name: str) -> bytes | None:
        """Return one small document, or None."""
        return self._documents.get((kind, name))

    def documents(self, kind: str) -> list[tuple[str, bytes]]:
        """Return (name, body) of every document of a kind, by name."""
        return [(name, body) for (of, name), body in sorted(self._documents.items()) if of == kind]

    def put_document(self, kind: str, name: str, body: bytes) -> None:
        """Write a document, new or known."""
        self._set(self._documents, (kind, name), body)

    def drop_document(self, kind: str, name: str) -> None:
        """Forget a document; nothing happens when there is none."""
        if (kind, name) in self._documents:
            self._set(self._documents, (kind, name), _ABSENT)

    # --- counters ---------------------------------------------------------------------------------------

    def count(self, name: str, *, node: str = "", reason: str = "", by: int = 1) -> None:
        """Add to a counter."""
        key = (name, node, reason)
        self._set(self._counters, key, min(self._counters.get(key, 0) + by, 1 << 62))

    def counters(self) -> list[Counter]:
        """Return every counter."""
        return [
            Counter(name=name, node=node, reason=reason, count=count)
            for (name, node, reason), count in sorted(self._counters.items())
        ]

    # --- inside -----------------------------------------------------------------------------------------

    def _in_state(self, state: TaskState) -> list[LedgerTask]:
        ids = sorted(self._by_state[state], key=self._arrivals.__getitem__)
        return [self._tasks[task_id] for task_id in ids]

    def _forget(self, task_ids: Iterable[str]) -> None:
        for task_id in task_ids:
            self._set(self._by_state[self._tasks[task_id].state], task_id, _ABSENT)
            for table in (self._tasks, self._arrivals, self._placements):
                self._set(table, task_id, _ABSENT)

    def _next(self, name: str) -> int:
        self._set(self._numbers, name, self._numbers[name] + 1)
        return self._numbers[name]

    def _set(self, table: dict[Any, Any], key: Any, value: Any) -> None:
        if self._depth:
            self._journal.append((table, key, table.get(key, _ABSENT)))
        _assign(table, key, value)

    def _undo(self, begun_at: int) -> None:
        while len(self._journal) > begun_at:
            _assign(*self._journal.pop())


def _assign(table: dict[Any, Any], key: Any, value: Any) -> None:
    if value is _ABSENT:
        table.pop(key, None)
    else:
        table[key] = value
