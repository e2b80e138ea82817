# pyright: reportMissingImports=false
"""localqueue: SQLite behind Rust, leases with receipts. durable: its mode DURABLE, else RELAXED."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from localqueue import SimpleQueue
from localqueue.exceptions import Empty
from localqueue.policies import DurabilityMode


class _Bytes:
    """Bodies as they are: no serialiser is measured."""

    def dumps(self, value: bytes, /) -> bytes:
        return value

    def loads(self, data: bytes, /) -> bytes:
        return data


class Adapter:
    """See Queue."""

    def __init__(self, directory: Path, durable: bool) -> None:
        """Open it."""
        mode = DurabilityMode.DURABLE if durable else DurabilityMode.RELAXED
        self._queue: SimpleQueue[bytes] = SimpleQueue(str(directory), durability=mode, serializer=_Bytes())

    def put(self, bodies: Sequence[bytes]) -> None:
        """See Queue."""
        if len(bodies) == 1:
            self._queue.put(bodies[0])
        else:
            self._queue.put_many(list(bodies))

    def cycle(self, count: int) -> int:
        """See Queue. There is no acknowledgement of several."""
        done = 0
        for _ in range(count):
            try:
                job = self._queue.get(block=False)
            except Empty:
                break
            self._queue.ack(job)
            done += 1
        return done

    def forget(self) -> None:
        """See Queue."""
        self._queue.purge(0.0)

    def pids(self) -> Sequence[int]:
        """See Queue."""
        return ()

    def close(self) -> None:
        """See Queue."""
        self._queue.close()


def open_queue(directory: Path, durable: bool) -> Adapter:
    """Open a localqueue."""
    return Adapter(directory, durable)
