"""A store behind a gate: a writer inside a commit for as long as a test wants."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from skerry.clock import Instant
from skerry.errors import StorageFailed
from skerry.testing import ManualClock
from task_queue.memory_store import MemoryStore
from task_queue.operations import Advance, Answer, Operation, PutMeta
from task_queue.testing import ROOMY
from task_queue.writer import StoreWriter


class GatedStore(MemoryStore):
    """A store whose commits wait for a gate, and are listed by the number of operations in each."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(now=clock.now(), wall_s=clock.wall_s, limits=ROOMY)
        self.gate = threading.Event()
        self.entered = threading.Event()
        self.commits: list[int] = []

    def apply(self, operations: Sequence[Operation], *, now: Instant) -> list[Answer]:
        self.entered.set()
        assert self.gate.wait(30)
        if any(isinstance(op, PutMeta) and op.name == "poison" for op in operations):
            raise StorageFailed("this one cannot be written")
        self.commits.append(len(operations))
        return super().apply(operations, now=now)


def hold_first(gated: GatedStore, writer: StoreWriter) -> None:
    """Submit one commit and wait until the writer is inside it: what follows must wait."""
    writer.submit([Advance()])
    assert gated.entered.wait(30)
