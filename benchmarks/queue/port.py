"""What a queue must do to be measured: put, and claim with acknowledgement. One adapter a system.

Owns what each system is and what its durability means; knows nothing of how it is measured.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Protocol

import msgspec

#: What a body weighs, bytes: the document of a small task.
BODY_BYTES = 256


class Queue(Protocol):
    """One open queue. Every call returns when what it did is as durable as the system makes it."""

    def put(self, bodies: Sequence[bytes]) -> None:
        """Put all bodies, in one commit where the system can."""
        ...

    def cycle(self, count: int) -> int:
        """Claim up to `count` and acknowledge them, in the fewest commits; return how many there were."""
        ...

    def forget(self) -> None:
        """Drop what ended, between measurements: what the system's owner would do now and then."""
        ...

    def pids(self) -> Sequence[int]:
        """Other processes that do this queue's work."""
        ...

    def close(self) -> None:
        """Close in order."""
        ...


class System(msgspec.Struct, frozen=True, kw_only=True):
    """A system by its words. module: has `open_queue(directory, durable) -> Queue`.

    is_full: with `durable`, an answered put or acknowledgement survives a power cut.
    put_batch, cycle_batch: its own best batch; 1 where it has no call for more.
    """

    name: str
    module: str
    is_full: bool = True
    put_batch: int = 100
    cycle_batch: int = 50
    note: str = ""


SYSTEMS: dict[str, System] = {
    one.name: one
    for one in (
        System(name="skerry", module="skerry_store", note="lease, fence, story and report included"),
        System(name="raw_sqlite", module="raw_sqlite", note="bare statements on Skerry's schema"),
        System(
            name="litequeue",
            module="lite_queue",
            cycle_batch=1,
            note="set to FULL; puts in its own transaction; one pop a transaction",
        ),
        System(name="localqueue", module="local_queue", cycle_batch=1, note="DURABLE; no batch of acks"),
        System(
            name="persist_queue",
            module="persist_queue",
            put_batch=1,
            cycle_batch=1,
            note="SQLiteAckQueue; FULL as SQLite was built; no batches",
        ),
        System(
            name="huey",
            module="huey_storage",
            put_batch=1,
            cycle_batch=1,
            note="fsync=True; a claim deletes the row: no lease, no acknowledgement",
        ),
        System(
            name="sqlitedict",
            module="sqlite_dict",
            cycle_batch=1,
            note="no queue; WAL and FULL set on its private connection, which it opens with OFF",
        ),
        System(
            name="nats",
            module="nats_jetstream",
            is_full=False,
            note="file store, sync always: puts are synced, what is acknowledged is not before the answer",
        ),
    )
}

Open = Callable[[Path, bool], Queue]


def opener(name: str) -> Open:
    """Return what opens a system's queue; its library is imported now.  Raises ImportError without it."""
    open_queue: Open = import_module(f"benchmarks.queue.systems.{SYSTEMS[name].module}").open_queue
    return open_queue


def bodies(count: int) -> list[bytes]:
    """Return bodies to put: text that every system takes, and no two alike."""
    return [f"{number:016x}".encode() * (BODY_BYTES // 16) for number in range(count)]
